// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/worker_thread.h"

#include <pthread.h>
#include <signal.h>

#include <memory>

#include "programs/agent/privilege.h"

namespace glovebox::agent {
namespace {

constexpr size_t kStackBytes = 1024 * 1024;  // of address space; directory walks recurse

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  give_up_privilege();
  (*body)();
  return nullptr;
}

}  // namespace

bool start_thread(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, &run, owned.get()) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (started) owned.release();
  return started;
}

}  // namespace glovebox::agent
