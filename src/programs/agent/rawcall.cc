// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/rawcall.h"

// In assembly because no compiler promises what a function does whose second return is on another
// stack.
#if defined(__x86_64__)
__asm__(R"(
.text
.globl glovebox_raw_clone
.type glovebox_raw_clone, @function
glovebox_raw_clone:
  andq $-16, %rsi
  subq $16, %rsi
  movq %rdx, 0(%rsi)
  movq %rcx, 8(%rsi)
  movq %r8, %rdx
  xorl %r10d, %r10d
  xorl %r8d, %r8d
  movl $56, %eax
  syscall
  testq %rax, %rax
  jz 1f
  ret
1:
  xorl %ebp, %ebp
  popq %rax
  popq %rdi
  call *%rax
  movl %eax, %edi
  movl $60, %eax
  syscall
  hlt
.size glovebox_raw_clone, .-glovebox_raw_clone
.section .note.GNU-stack,"",@progbits
.text
)");
#elif defined(__aarch64__)
__asm__(R"(
.text
.globl glovebox_raw_clone
.type glovebox_raw_clone, %function
glovebox_raw_clone:
  and x1, x1, #-16
  stp x2, x3, [x1, #-16]!
  mov x2, x4
  mov x3, xzr
  mov x4, xzr
  mov x8, #220
  svc 0
  cbz x0, 1f
  ret
1:
  mov x29, xzr
  ldp x1, x0, [sp], #16
  blr x1
  mov x8, #93
  svc 0
.size glovebox_raw_clone, .-glovebox_raw_clone
.section .note.GNU-stack,"",%progbits
.text
)");
#endif
