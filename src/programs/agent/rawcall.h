// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>

// System calls that touch nothing but registers: no errno, no thread-local storage, no locks. Code
// that runs in a process which shares the agent's memory (the supervisors and their children before
// execve) may use nothing else.
namespace glovebox::agent {

// The kernel's answer as it is: negative errno on failure.
inline long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                long f = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
#else
#error "rawcall.h: this processor is not supported yet"
#endif
}

template <class T>
long raw_arg(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

// clone(2) that runs fn(arg) on the given stack and exits with what it returns. `stack_top` is the
// high end; `parent_tid` is for CLONE_PARENT_SETTID.
extern "C" long glovebox_raw_clone(unsigned long flags, void* stack_top, int (*fn)(void*),
                                   void* arg, int* parent_tid);

}  // namespace glovebox::agent
