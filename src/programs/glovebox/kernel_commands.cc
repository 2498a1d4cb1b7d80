// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/object.hpp>

#include "programs/glovebox/assets.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "runtime/microvm/kernel.h"
#include "sys/files.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
using runtime::microvm::GuestKernel;

// For as long as the command runs: the kernel's directory keeps the agent as part of an initramfs.
class AgentFile {
 public:
  explicit AgentFile(const std::string& data_dir) : path_(data_dir + "/kernels/.agent-" + std::to_string(::getpid())) {}
  AgentFile(const AgentFile&) = delete;
  AgentFile& operator=(const AgentFile&) = delete;
  ~AgentFile() { (void)::unlink(path_.c_str()); }
  Result<void> write(const std::string& data_dir) const {
    GB_TRYV(sys::make_directories(data_dir + "/kernels", 0755));
    return sys::put_file(path_, embedded_agent(), 0600);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int show(const Settings& settings, const Result<GuestKernel>& kernel) {
  if (!kernel) return conclude(settings, fail(kernel.error()));
  if (settings.json) {
    print_json(bj::object{{"release", kernel->release}, {"digest", kernel->digest}, {"vmlinux", kernel->vmlinux}, {"initramfs", kernel->initramfs}});
  } else {
    print(render_fields({{"release", kernel->release}, {"digest", kernel->digest}, {"kernel", kernel->vmlinux}, {"initramfs", kernel->initramfs}},
                        colours_on(STDOUT_FILENO)));
  }
  return kOk;
}

}  // namespace

int command_kernel_build(const Settings& settings, const std::string& package) {
  const AgentFile agent(settings.data_dir);
  if (auto written = agent.write(settings.data_dir); !written) return conclude(settings, fail(written.error()));
  return show(settings, runtime::microvm::build_guest_kernel(settings.data_dir, agent.path(), package));
}

int command_kernel_show(const Settings& settings) {
  const AgentFile agent(settings.data_dir);
  if (auto written = agent.write(settings.data_dir); !written) return conclude(settings, fail(written.error()));
  return show(settings, runtime::microvm::guest_kernel(settings.data_dir, agent.path()));
}

}  // namespace glovebox::cli
