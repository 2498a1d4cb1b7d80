// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/testing/fake_firecracker.h"

// Firecracker and its jailer without either, under both names: the jailer takes the words that the
// real one takes, and makes the same jail in the same way; the monitor is the fake control socket,
// opens what it is told to open, and then plays a guest whose agent is the program that it was
// given as initramfs. What is to go wrong is in the file "<program>.mode", words "name=value" in
// lines, and in words of the guest's command line.
namespace {

using Modes = std::map<std::string, std::string>;
using glovebox::runtime::testing::FakeFirecracker;
using Misbehaviour = FakeFirecracker::Misbehaviour;

[[noreturn]] void die(const std::string& what) {
  std::cerr << what << ": " << std::strerror(errno) << std::endl;
  ::_exit(1);
}
void must(bool ok, const std::string& what) {
  if (!ok) die(what);
}

Modes read_modes(const std::string& program) {
  Modes modes;
  std::ifstream in(program + ".mode");
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) modes[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return modes;
}

std::string or_else(const Modes& modes, const std::string& name, const std::string& otherwise) {
  const auto found = modes.find(name);
  return found == modes.end() ? otherwise : found->second;
}

// ---- The monitor ----

// "PUT /drives/x {…}": the bodies of requests that begin so.
std::vector<boost::json::object> bodies(const FakeFirecracker& fake, const std::string& begin) {
  std::vector<boost::json::object> out;
  for (const auto& request : fake.requests()) {
    if (request.starts_with(begin))
      out.push_back(boost::json::parse(request.substr(request.find('{'))).as_object());
  }
  return out;
}

std::string text(const boost::json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

void open_what_it_was_given(const FakeFirecracker& fake, const boost::json::object& boot) {
  for (const char* name : {"kernel_image_path", "initrd_path"})
    must(::open(text(boot, name).c_str(), O_RDONLY | O_CLOEXEC) >= 0, text(boot, name));
  for (const auto& drive : bodies(fake, "PUT /drives/")) {
    const std::string path = text(drive, "path_on_host");
    const bool read_only = drive.at("is_read_only").as_bool();
    must(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC) >= 0, path);
    if (read_only && ::open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0)
      die(path + " can be written to");
  }
}

[[noreturn]] void run_agent(const std::string& vsock) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (vsock + "_52").c_str(), sizeof address.sun_path - 1);
  const int agent = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(::connect(agent, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, vsock);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(agent, 0);
    ::dup2(agent, 1);
    ::execl("/initramfs", "agent", "--no-setup", nullptr);
    die("/initramfs");
  }
  ::close(agent);
  ::waitpid(child, nullptr, 0);
  ::_exit(0);
}

constexpr std::chrono::milliseconds kGuestMoment{500};

[[noreturn]] void be_guest(const FakeFirecracker& fake) {
  const auto boot = bodies(fake, "PUT /boot-source").at(0);
  const std::string words = text(boot, "boot_args");
  open_what_it_was_given(fake, boot);
  std::cout << "guest: " << words << std::endl;
  const auto has = [&](const char* word) { return words.find(word) != std::string::npos; };
  // A kernel does not get there before its monitor has answered the call that started it.
  if (has("fake.panic") || has("fake.crash")) {
    while (!fake.has_answered_start()) ::usleep(1000);
    std::this_thread::sleep_for(kGuestMoment);
  }
  if (has("fake.panic")) {
    std::cout << "Kernel panic - not syncing: Attempted to kill init!" << std::endl;
    ::_exit(0);
  }
  if (has("fake.crash")) ::_exit(148);
  if (has("fake.flood")) {
    for (const std::string line(4000, 'f'); std::cout << line << std::endl;) {
    }
  }
  if (has("fake.silent")) {
    while (true) ::pause();
  }
  run_agent(text(bodies(fake, "PUT /vsock").at(0), "uds_path"));
}

[[noreturn]] void be_firecracker(const std::string& socket, const Modes& modes) {
  static const std::map<std::string, Misbehaviour> kKinds = {{"silence", Misbehaviour::kSilence},
                                                             {"hangup", Misbehaviour::kHangUp},
                                                             {"refusal", Misbehaviour::kRefusal}};
  const auto kind = kKinds.find(or_else(modes, "misbehave", ""));
  const FakeFirecracker fake(socket, or_else(modes, "version", "1.16.1"),
                             kind == kKinds.end() ? Misbehaviour::kNone : kind->second,
                             or_else(modes, "when", ""));
  while (fake.state() != "Running") ::usleep(1000);
  be_guest(fake);
}

// ---- The jailer ----

struct Arguments {
  Modes values;
  std::vector<std::string> rest;
  bool new_pid_ns = false;
};

Arguments parse(int argc, char** argv) {
  static const std::vector<std::string> kKnown = {"--id",
                                                  "--exec-file",
                                                  "--uid",
                                                  "--gid",
                                                  "--chroot-base-dir",
                                                  "--cgroup-version",
                                                  "--resource-limit"};
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") {
      out.rest.assign(argv + i + 1, argv + argc);
      break;
    }
    errno = EINVAL;
    if (word == "--new-pid-ns") {
      out.new_pid_ns = true;
    } else if (std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end() && i + 1 < argc) {
      out.values[word] = argv[++i];
    } else {
      die("Found argument '" + word + "' which wasn't expected");
    }
  }
  for (const char* needed : {"--id", "--exec-file", "--uid", "--gid"})
    must(out.values.contains(needed), needed);
  must(or_else(out.values, "--cgroup-version", "1") == "1",
       "--cgroup-version");  // 2 would look for a group of its own
  return out;
}

void enter(const std::string& root) {
  must(::unshare(CLONE_NEWNS) == 0, "unshare");
  must(::mount(nullptr, "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0, "slave");
  must(::mount(root.c_str(), root.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0, "bind");
  must(::chdir(root.c_str()) == 0 && ::mkdir("old_root", 0600) == 0, root);
  must(::syscall(SYS_pivot_root, ".", "old_root") == 0, "pivot_root");
  must(::chdir("/") == 0 && ::umount2("old_root", MNT_DETACH) == 0 && ::rmdir("old_root") == 0,
       "old_root");
}

void make_place(unsigned uid, unsigned gid) {
  for (const char* folder : {"/", "/dev", "/dev/net", "/run"}) {
    std::filesystem::create_directories(folder);
    must(::chmod(folder, 0700) == 0 && ::chown(folder, uid, gid) == 0, folder);
  }
  for (const auto& [path, minor] : {std::pair{"/dev/net/tun", 200u}, {"/dev/kvm", 232u}})
    must(::mknod(path, S_IFCHR | 0600, makedev(10, minor)) == 0 && ::chown(path, uid, gid) == 0,
         path);
}

void become(unsigned uid, unsigned gid) {
  must(::setgroups(0, nullptr) == 0 && ::setgid(gid) == 0 && ::setuid(uid) == 0, "user");
}

[[noreturn]] void be_jailer(const Arguments& arguments) {
  const std::string program =
      std::filesystem::canonical(arguments.values.at("--exec-file")).string();
  const Modes modes = read_modes(arguments.values.at("--exec-file"));
  const std::string name = std::filesystem::path(program).filename().string();
  const std::string root =
      std::filesystem::canonical(arguments.values.at("--chroot-base-dir")).string() + "/" + name +
      "/" + arguments.values.at("--id") + "/root";
  if (or_else(modes, "jailer", "") == "fails") die("Failed to do what it was told");
  if (or_else(modes, "jailer", "") == "hangs") ::pause();
  ::syscall(SYS_close_range, 3, ~0u, 0);
  std::filesystem::create_directories(root);
  std::ofstream(root + "/" + name) << "a copy of the program";
  const std::string limit = or_else(arguments.values, "--resource-limit", "no-file=2048");
  must(limit.starts_with("no-file="), limit);
  const rlimit files{std::stoul(limit.substr(8)), std::stoul(limit.substr(8))};
  must(::setrlimit(RLIMIT_NOFILE, &files) == 0, limit);
  const auto uid = static_cast<unsigned>(std::stoul(arguments.values.at("--uid"))),
             gid = static_cast<unsigned>(std::stoul(arguments.values.at("--gid")));
  enter(root);
  make_place(uid, gid);
  must(arguments.new_pid_ns && ::unshare(CLONE_NEWPID) == 0, "--new-pid-ns");
  must(arguments.rest.size() == 2 && arguments.rest[0] == "--api-sock", "what follows --");
  const pid_t child = ::fork();
  must(child >= 0, "fork");
  if (child == 0) {
    ::setsid();
    become(uid, gid);
    be_firecracker(arguments.rest[1], modes);
  }
  std::ofstream("/" + name + ".pid") << child;
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const std::string program = argv[0], name = program.substr(program.rfind('/') + 1);
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::cout << (name == "jailer" ? "Jailer" : "Firecracker") << " v"
              << or_else(read_modes(program), "version", "1.16.1") << "\n\nmore" << std::endl;
    return 0;
  }
  be_jailer(parse(argc, argv));
}
