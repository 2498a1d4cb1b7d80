// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/kernel.h"

#include <boost/json/parse.hpp>

#include "sys/files.h"

namespace glovebox::runtime::microvm {

Result<GuestKernel> guest_kernel(const std::string& data_dir, const std::string&) {
  const std::string link = data_dir + "/kernels/current";
  const std::string target = sys::read_link(link);
  const std::string place = target.starts_with('/') ? target : data_dir + "/kernels/" + target;
  GuestKernel kernel{place + "/vmlinux", place + "/initramfs.cpio", "",
                     place.substr(place.rfind('/') + 1)};
  if (target.empty() || !sys::exists(kernel.vmlinux) || !sys::exists(kernel.initramfs))
    return fail(Code::kRuntimeUnavailable,
                "there is no guest kernel: " + link + " holds no vmlinux with initramfs.cpio");
  boost::system::error_code ec;
  const auto manifest =
      boost::json::parse(sys::read_file(place + "/manifest.json").value_or("null"), ec);
  const auto* release =
      !ec && manifest.is_object() ? manifest.get_object().if_contains("release") : nullptr;
  if (release == nullptr || !release->is_string())
    return fail(Code::kRuntimeUnavailable, place + "/manifest.json names no release");
  kernel.release = std::string(release->get_string());
  return kernel;
}

}  // namespace glovebox::runtime::microvm
