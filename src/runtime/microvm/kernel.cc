// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/kernel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/text.h"
#include "sys/command.h"
#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMetapackage = "linux-image-cloud-amd64";
constexpr size_t kMaxKernel = 128 << 20, kMaxModule = 32 << 20;
constexpr auto kPatience = 300s;
constexpr const char* kInitramfs = "initramfs-";
constexpr time_t kUnusedSeconds = 7 * 86400;
// What a guest cannot do without, as far as it is not built in; each brings what it depends on. The last ones help where they exist.
constexpr const char* kModules[] = {"virtio_mmio", "virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "erofs", "ext4", "overlay"};
constexpr const char* kOptionalModules[] = {"crc32c_generic", "lz4_decompress", "virtio_rng", "vmw_vsock_virtio_transport", "binfmt_misc", "fuse", "tun", "tcp_diag"};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == text.npos ? std::string() : std::string(text.substr(begin, end - begin + 1));
}

Result<GuestKernel> none() {
  return fail(Code::kRuntimeUnavailable, "there is no guest kernel: run `glovebox kernel build`");
}

}  // namespace

Result<std::string> sha256(const std::vector<std::string>& files) {
  std::vector<std::string> command = {"sha256sum", "--"};
  command.insert(command.end(), files.begin(), files.end());
  GB_TRY(const auto sums, sys::run_command(command, kPatience));
  std::string digests;
  for (const auto& line : split(sums, '\n')) digests += std::string(line.substr(0, 64)) + "\n";
  if (files.size() == 1) return digests.substr(0, 64);
  GB_TRY(const auto one, sys::run_command({"sha256sum", "-"}, kPatience, digests));
  return one.substr(0, 64);
}

namespace {

// ---- initramfs: cpio "newc" archives, one behind the other ----

class Archive {
 public:
  void directory(const std::string& name) { entry(name, 040755, {}); }
  void file(const std::string& name, std::string_view content, unsigned mode) { entry(name, 0100000 | mode, content); }
  void device(const std::string& name, unsigned major, unsigned minor) { entry(name, 020600, {}, major, minor); }
  std::string take() {
    entry("TRAILER!!!", 0, {});
    out_.resize((out_.size() + 511) / 512 * 512);
    return std::move(out_);
  }

 private:
  void number(uint64_t value) {
    char text[9];
    snprintf(text, sizeof text, "%08X", static_cast<unsigned>(value));
    out_ += text;
  }
  void entry(const std::string& name, unsigned mode, std::string_view content, unsigned major = 0, unsigned minor = 0) {
    out_ += "070701";
    for (const uint64_t field : {uint64_t(++inode_), uint64_t(mode), uint64_t(0), uint64_t(0), uint64_t(1), uint64_t(0), uint64_t(content.size()), uint64_t(0),
                                 uint64_t(0), uint64_t(major), uint64_t(minor), uint64_t(name.size() + 1), uint64_t(0)}) {
      number(field);
    }
    out_ += name + '\0';
    out_.resize((out_.size() + 3) / 4 * 4);
    out_ += content;
    out_.resize((out_.size() + 3) / 4 * 4);
  }
  std::string out_;
  unsigned inode_ = 0;
};

// QEMU 10's firmware puts its tables where an archive that ends near a page's end would lie: it always ends early in one.
void end_early_in_a_page(std::string* archive) {
  constexpr size_t kPage = 4096, kEnd = 512;
  archive->resize((archive->size() + kPage - kEnd - 1) / kPage * kPage + kEnd);
}

// Those of earlier agents, which another daemon may still have. One that goes on without its file makes it again.
void remove_unused(const std::string& directory) {
  for (const auto& name : sys::list_directory(directory)) {
    if (!name.starts_with(kInitramfs) && !name.starts_with("." + std::string(kInitramfs))) continue;
    const std::string path = directory + "/" + name;
    struct stat st{};
    if (::lstat(path.c_str(), &st) == 0 && st.st_mtim.tv_sec < ::time(nullptr) - kUnusedSeconds) (void)::unlink(path.c_str());
  }
}

Result<std::string> initramfs_for(const std::string& directory, const std::string& agent_path) {
  GB_TRY(const auto agent, sha256({agent_path}));
  const std::string path = directory + "/" + kInitramfs + agent.substr(0, 16) + ".cpio";
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0) return path;  // and it is in use
  GB_TRY(const auto program, sys::read_file(agent_path, kMaxKernel));
  GB_TRY(const auto modules, sys::read_file(directory + "/modules.cpio", kMaxKernel));
  Archive first;
  first.directory("dev");
  first.device("dev/console", 5, 1);
  first.file("init", program, 0755);
  std::string archive = first.take() + modules;
  end_early_in_a_page(&archive);
  const std::string beside = directory + "/.initramfs-" + std::to_string(::getpid());
  GB_TRYV(sys::put_file(beside, archive, 0644));
  if (::rename(beside.c_str(), path.c_str()) != 0) return fail_errno(path);
  remove_unused(directory);
  return path;
}

Result<GuestKernel> open_kernel(const std::string& directory, const std::string& agent_path) {
  GuestKernel kernel;
  kernel.vmlinux = directory + "/vmlinux";
  GB_TRY(const auto release, sys::read_file(directory + "/release"));
  GB_TRY(const auto digest, sys::read_file(directory + "/digest"));
  kernel.release = trimmed(release);
  kernel.digest = trimmed(digest);
  GB_TRY(kernel.initramfs, initramfs_for(directory, agent_path));
  return kernel;
}

// ---- Out of a package ----

// The package behind the metapackage, from the machine's own, verified lists.
Result<std::string> package_name() {
  auto shown = sys::run_command({"apt-cache", "show", "--no-all-versions", kMetapackage}, 60s);
  if (!shown) return fail(Code::kUnavailable, std::string("this machine's apt does not know ") + kMetapackage + "; give a package with --from: " + shown.error().message);
  for (const auto& line : split(*shown, '\n')) {
    if (!line.starts_with("Depends:")) continue;
    for (const auto& word : split(line.substr(8), ',')) {
      const std::string word_only = trimmed(word), name(split(word_only, ' ')[0]);
      if (name.starts_with("linux-image-")) return name;
    }
  }
  return fail(Code::kUnavailable, std::string(kMetapackage) + " names no kernel");
}

Result<std::string> fetch_package(const std::string& into) {
  GB_TRY(const auto name, package_name());
  GB_TRYV(sys::run_command({"env", "-C", into, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name}, kPatience));
  for (const auto& file : sys::list_directory(into)) {
    if (file.ends_with(".deb")) return into + "/" + file;
  }
  return fail(Code::kUnavailable, "apt fetched no package");
}

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// The payload of a bzImage, as its header (Linux' boot protocol 2.08 and later) says where it is.
Result<std::string> unpack_kernel(const std::string& image_path, const std::string& scratch) {
  GB_TRY(const auto image, sys::read_file(image_path, kMaxKernel));
  if (image.size() < 4096 || image.substr(0x202, 4) != "HdrS") return fail(Code::kCorrupt, image_path + " is no kernel image");
  const size_t sectors = image[0x1f1] == 0 ? 4 : static_cast<unsigned char>(image[0x1f1]);
  const uint64_t begin = (sectors + 1) * 512 + little_endian(image, 0x248), length = little_endian(image, 0x24c);
  if (length < 8 || begin + length > image.size()) return fail(Code::kCorrupt, image_path + ": its payload is outside of it");
  std::string payload = image.substr(begin, length);
  std::string tool;
  if (payload.starts_with("\xfd"
                          "7zXZ"))
    tool = "xz -dc --single-stream";
  if (payload.starts_with("\x28\xb5\x2f\xfd")) tool = "zstd -dcq";
  if (payload.starts_with("\x02\x21\x4c\x18")) tool = "lz4 -dcq";
  if (payload.starts_with("\x1f\x8b")) tool = "gzip -dcq";
  if (tool.empty()) return fail(Code::kUnsupported, image_path + ": compressed in a way that is not known here");
  if (!tool.starts_with("gzip")) payload.resize(payload.size() - 4);  // followed by its size
  GB_TRYV(sys::put_file(scratch + "/payload", payload, 0600));
  GB_TRYV(sys::run_command({"sh", "-c", "ulimit -f 1048576; " + tool + " <\"$1\" >\"$2\"", "sh", scratch + "/payload", scratch + "/vmlinux"}, kPatience));
  GB_TRY(const auto head, sys::read_file(scratch + "/vmlinux", 4));
  if (head != "\x7f"
              "ELF")
    return fail(Code::kCorrupt, image_path + ": its payload is no ELF file");
  return scratch + "/vmlinux";
}

std::string module_name(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  name = name.substr(0, name.find(".ko"));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

struct ModuleList {
  std::string directory;
  std::set<std::string> built_in;
  std::map<std::string, std::string> path;  // by name, below the directory
  std::vector<std::pair<std::string, std::string>> order;  // names with their content, each behind what it depends on
};

Result<ModuleList> read_modules(const std::string& directory) {
  ModuleList list;
  list.directory = directory;
  GB_TRY(const auto built_in, sys::read_file(directory + "/modules.builtin", 8 << 20));
  for (const auto& line : split(built_in, '\n')) list.built_in.insert(module_name(line));
  GB_TRY(const auto all, sys::read_file(directory + "/modules.order", 8 << 20));
  for (const auto& line : split(all, '\n')) {
    if (line.empty()) continue;
    std::string path(line);
    for (const char* suffix : {"", ".xz", ".zst"}) {
      if (sys::exists(directory + "/" + path + suffix)) list.path[module_name(path)] = path + suffix;
    }
  }
  return list;
}

Result<std::string> read_module(const std::string& path) {
  if (path.ends_with(".xz")) return sys::run_command({"xz", "-dc", path}, 60s);
  if (path.ends_with(".zst")) return sys::run_command({"zstd", "-dcq", path}, 60s);
  return sys::read_file(path, kMaxModule);
}

// As its own notes say.
std::vector<std::string> needs_of(const std::string& content) {
  constexpr std::string_view kKey("\0depends=", 9);
  const size_t at = content.find(kKey);
  if (at == content.npos) return {};
  std::vector<std::string> out;
  for (const auto& name : split(std::string_view(content.c_str() + at + kKey.size()), ',')) {
    if (!name.empty()) out.push_back(module_name(name));
  }
  return out;
}

Result<void> add_module(ModuleList& list, const std::string& name) {
  const auto is_it = [&](const auto& loaded) { return loaded.first == name; };
  if (std::any_of(list.order.begin(), list.order.end(), is_it) || list.built_in.contains(name)) return {};
  const auto found = list.path.find(name);
  if (found == list.path.end()) return fail(Code::kUnsupported, "the kernel has no " + name);
  GB_TRY(auto content, read_module(list.directory + "/" + found->second));
  list.path.erase(found);  // a circle ends here
  for (const auto& needed : needs_of(content)) GB_TRYV(add_module(list, needed));
  list.order.emplace_back(name, std::move(content));
  return {};
}

Result<std::string> pack_modules(const std::string& directory) {
  GB_TRY(auto list, read_modules(directory));
  (void)add_module(list, "crc32c_generic");  // ext4 asks for it by name only
  for (const char* name : kModules) GB_TRYV(add_module(list, name));
  for (const char* name : kOptionalModules) (void)add_module(list, name);
  Archive archive;
  archive.directory("modules");
  for (size_t i = 0; i < list.order.size(); ++i) {
    char number[16];
    snprintf(number, sizeof number, "%03zu-", i);
    archive.file("modules/" + (number + list.order[i].first) + ".ko", list.order[i].second, 0644);
  }
  return archive.take();
}

Result<std::string> only_file(const std::string& directory, std::string_view prefix) {
  for (const auto& name : sys::list_directory(directory)) {
    if (name.starts_with(prefix)) return name;
  }
  return fail(Code::kCorrupt, "the package holds no " + std::string(prefix) + "… file");
}

// Everything beside the final place, then one rename.
Result<std::string> build_in(const std::string& kernels, const std::string& scratch, std::string package) {
  if (package.empty()) {
    GB_TRY(package, fetch_package(scratch));
  }
  const std::string root = scratch + "/root", made = scratch + "/made";
  GB_TRYV(sys::make_directory(made, 0755));
  GB_TRYV(sys::run_command({"dpkg-deb", "-x", package, root}, kPatience));
  if (!sys::exists(root + "/lib") && sys::exists(root + "/usr/lib/modules")) {
    if (::symlink("usr/lib", (root + "/lib").c_str()) != 0) return fail_errno(root + "/lib");
  }
  GB_TRY(const auto image, only_file(root + "/boot", "vmlinuz-"));
  const std::string release = image.substr(8);
  GB_TRY(const auto vmlinux, unpack_kernel(root + "/boot/" + image, scratch));
  GB_TRY(const auto modules, pack_modules(root + "/lib/modules/" + release));
  if (::rename(vmlinux.c_str(), (made + "/vmlinux").c_str()) != 0) return fail_errno(made);
  GB_TRYV(sys::put_file(made + "/modules.cpio", modules, 0644));
  GB_TRY(const auto digest, sha256({made + "/vmlinux", made + "/modules.cpio"}));
  GB_TRY(const auto of_package, sha256({package}));
  GB_TRYV(sys::put_file(made + "/release", release + "\n", 0644));
  GB_TRYV(sys::put_file(made + "/digest", digest + "\n", 0644));
  GB_TRYV(sys::put_file(made + "/manifest.json", "{\"release\":\"" + release + "\",\"digest\":\"" + digest + "\",\"package\":\"" +
                                                     package.substr(package.rfind('/') + 1) + "\",\"package_sha256\":\"" + of_package + "\"}\n", 0644));
  if (::chmod((made + "/vmlinux").c_str(), 0644) != 0) return fail_errno(made);
  const std::string place = kernels + "/" + digest.substr(0, 16);
  if (!sys::exists(place) && ::rename(made.c_str(), place.c_str()) != 0) return fail_errno(place);
  const std::string link = kernels + "/current.new";
  (void)::unlink(link.c_str());
  if (::symlink(digest.substr(0, 16).c_str(), link.c_str()) != 0 || ::rename(link.c_str(), (kernels + "/current").c_str()) != 0) return fail_errno(link);
  return place;
}

std::mutex& initramfs_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Every start asks: the agent is summed once for each kernel and agent. Under the mutex.
Result<GuestKernel> open_known_kernel(const std::string& directory, const std::string& agent_path) {
  static std::map<std::pair<std::string, std::string>, GuestKernel> known;
  const auto key = std::pair(directory, agent_path);
  const auto found = known.find(key);
  if (found != known.end() && sys::exists(found->second.initramfs)) return found->second;
  GB_TRY(auto kernel, open_kernel(directory, agent_path));
  return known[key] = std::move(kernel);
}

}  // namespace

Result<GuestKernel> guest_kernel(const std::string& data_dir, const std::string& agent_path) {
  const std::lock_guard lock(initramfs_mutex());
  const std::string current = sys::read_link(data_dir + "/kernels/current");
  if (current.empty()) return none();
  return open_known_kernel(data_dir + "/kernels/" + current, agent_path);
}

Result<GuestKernel> build_guest_kernel(const std::string& data_dir, const std::string& agent_path, const std::string& package) {
  const std::string kernels = data_dir + "/kernels";
  GB_TRYV(sys::make_directories(kernels, 0755));
  std::string scratch = kernels + "/.build-XXXXXX";
  if (::mkdtemp(scratch.data()) == nullptr) return fail_errno(scratch);
  auto place = build_in(kernels, scratch, package);
  (void)sys::remove_tree(scratch);
  if (!place) return fail(place.error());
  const std::lock_guard lock(initramfs_mutex());
  return open_kernel(*place, agent_path);
}

}  // namespace glovebox::runtime::microvm
