// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/spool.h"
#include "image/templates.h"

namespace glovebox::image {

struct OciLayer {
  const Blob* blob = nullptr;
  std::string diff_id;  // 64 hex digits: SHA-256 of the uncompressed layer; empty when the
                        // configuration has none
};

struct OciImage {
  std::vector<OciLayer> layers;  // lowest first
  TemplateConfig config;
  std::map<std::string, std::string> source;  // digests, for the manifest
};

// Finds the image for linux/`architecture` ("amd64") in an OCI layout or a `docker save` archive.
// kCorrupt, kUnsupported.
Result<OciImage> find_image(const Blobs& blobs, const std::string& architecture);
// The OCI name of this machine's architecture.
std::string host_architecture();

}  // namespace glovebox::image
