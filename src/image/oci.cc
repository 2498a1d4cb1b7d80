// SPDX-License-Identifier: Apache-2.0
#include "image/oci.h"

#include <sys/utsname.h>

#include <boost/json.hpp>

#include "image/digest.h"

namespace glovebox::image {
namespace {

namespace json = boost::json;
constexpr size_t kMaxJson = 8 << 20;
constexpr size_t kMaxLayers = 1000;
constexpr int kMaxIndexDepth = 4;

// Readers that take absent or wrong for empty: what matters is checked where it is used.
std::string text_in(const json::object& o, const char* key) {
  const auto* v = o.if_contains(key);
  return v != nullptr && v->is_string() ? std::string(v->as_string()) : std::string();
}
const json::object* object_in(const json::object& o, const char* key) {
  const auto* v = o.if_contains(key);
  return v != nullptr ? v->if_object() : nullptr;
}
const json::array* array_in(const json::object& o, const char* key) {
  const auto* v = o.if_contains(key);
  return v != nullptr ? v->if_array() : nullptr;
}
std::vector<std::string> texts_in(const json::object& o, const char* key) {
  std::vector<std::string> out;
  if (const auto* list = array_in(o, key)) {
    for (const auto& v : *list) {
      if (v.is_string()) out.emplace_back(v.as_string());
    }
  }
  return out;
}

Result<json::value> parse(const Blobs& blobs, const Blob& blob, const std::string& what) {
  GB_TRY(const auto text, blobs.read(blob, kMaxJson));
  json::error_code error;
  auto value = json::parse(text, error);
  if (error) return fail(Code::kCorrupt, what + " is not JSON: " + error.message());
  return value;
}

Result<json::object> parse_object(const Blobs& blobs, const Blob& blob, const std::string& what) {
  GB_TRY(auto value, parse(blobs, blob, what));
  if (!value.is_object()) return fail(Code::kCorrupt, what + " is not a JSON object");
  return std::move(value.as_object());
}

TemplateConfig config_of(const json::object& image) {
  TemplateConfig out;
  const auto* config = object_in(image, "config");
  if (config == nullptr) return out;
  for (const auto& line : texts_in(*config, "Env")) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos && equals > 0)
      out.env[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const std::string user = text_in(*config, "User"), workdir = text_in(*config, "WorkingDir");
  if (!user.substr(0, user.find(':')).empty()) out.user = user.substr(0, user.find(':'));
  if (!workdir.empty()) out.workdir = workdir[0] == '/' ? workdir : "/" + workdir;
  out.entrypoint = texts_in(*config, "Entrypoint");
  out.cmd = texts_in(*config, "Cmd");
  if (const auto* ports = object_in(*config, "ExposedPorts")) {
    for (const auto& port : *ports) out.exposed_ports.emplace_back(port.key());
  }
  return out;
}

Result<void> check_platform(const json::object& image, const std::string& architecture) {
  const std::string os = text_in(image, "os"), its = text_in(image, "architecture");
  if ((os.empty() || os == "linux") && (its.empty() || its == architecture)) return {};
  return fail(Code::kUnsupported,
              "the image is for " + os + "/" + its + ", this machine runs linux/" + architecture,
              {{"architecture", its}});
}

// Takes configuration and diff ids from the image's configuration blob; layers are in place
// already.
Result<void> apply_config(const Blobs& blobs, const Blob& blob, const std::string& architecture,
                          OciImage& image) {
  GB_TRY(const auto config, parse_object(blobs, blob, "the image's configuration"));
  GB_TRYV(check_platform(config, architecture));
  image.config = config_of(config);
  image.source["config_digest"] = blob.sha256;
  const auto* rootfs = object_in(config, "rootfs");
  const auto ids = rootfs != nullptr ? texts_in(*rootfs, "diff_ids") : std::vector<std::string>();
  if (ids.empty() && image.layers.empty()) return {};
  if (ids.size() != image.layers.size())
    return fail(Code::kCorrupt, "the image's configuration names another number of layers");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i].rfind("sha256:", 0) != 0 || !is_sha256_hex(std::string_view(ids[i]).substr(7))) {
      return fail(Code::kCorrupt, "the image's configuration has a bad diff_id");
    }
    image.layers[i].diff_id = ids[i].substr(7);
  }
  return {};
}

Result<OciImage> image_of_manifest(const Blobs& blobs, const Blob& blob,
                                   const json::object& manifest, const std::string& architecture) {
  OciImage image;
  image.source["manifest_digest"] = blob.sha256;
  const auto* layers = array_in(manifest, "layers");
  const auto* config = object_in(manifest, "config");
  if (layers == nullptr || config == nullptr)
    return fail(Code::kCorrupt, "the image's manifest lacks layers or config");
  if (layers->size() > kMaxLayers)
    return fail(Code::kPayloadTooLarge, "the image has too many layers", {{"limit", "layers"}});
  for (const auto& layer : *layers) {
    if (!layer.is_object()) return fail(Code::kCorrupt, "the image's manifest has a bad layer");
    GB_TRY(const Blob* found, blobs.by_digest(text_in(layer.as_object(), "digest")));
    image.layers.push_back({found, {}});
  }
  GB_TRY(const Blob* config_blob, blobs.by_digest(text_in(*config, "digest")));
  GB_TRYV(apply_config(blobs, *config_blob, architecture, image));
  return image;
}

// 2: made for this machine, 1: does not say, 0: for another.
int fitness(const json::object& descriptor, const std::string& architecture) {
  const auto* platform = object_in(descriptor, "platform");
  if (platform == nullptr) return 1;
  return text_in(*platform, "os") == "linux" && text_in(*platform, "architecture") == architecture
             ? 2
             : 0;
}

Result<OciImage> image_of_index(const Blobs& blobs, const json::object& index,
                                const std::string& architecture, int depth) {
  const auto* manifests = array_in(index, "manifests");
  if (manifests == nullptr || depth > kMaxIndexDepth)
    return fail(Code::kCorrupt, "the image's index lists no manifests");
  Error why{Code::kUnsupported, "the archive has no image for linux/" + architecture, {}};
  for (const int wanted : {2, 1}) {
    for (const auto& entry : *manifests) {
      if (!entry.is_object() || fitness(entry.as_object(), architecture) != wanted) continue;
      GB_TRY(const Blob* blob, blobs.by_digest(text_in(entry.as_object(), "digest")));
      GB_TRY(const auto content, parse_object(blobs, *blob, "the image's manifest"));
      auto image = array_in(content, "manifests") != nullptr
                       ? image_of_index(blobs, content, architecture, depth + 1)
                       : image_of_manifest(blobs, *blob, content, architecture);
      if (image || image.error().code != Code::kUnsupported) return image;
      why = image.error();
    }
  }
  return fail(std::move(why));
}

// `docker save` of old: manifest.json names the members.
Result<OciImage> image_of_docker(const Blobs& blobs, const Blob& list_blob,
                                 const std::string& architecture) {
  GB_TRY(const auto list, parse(blobs, list_blob, "manifest.json"));
  if (!list.is_array() || list.as_array().empty() || !list.as_array()[0].is_object()) {
    return fail(Code::kCorrupt, "manifest.json lists no image");
  }
  const auto& entry = list.as_array()[0].as_object();
  OciImage image;
  for (const auto& name : texts_in(entry, "Layers")) {
    const Blob* layer = blobs.find(name);
    if (layer == nullptr)
      return fail(Code::kCorrupt, "the archive lacks layer " + name.substr(0, 200));
    image.layers.push_back({layer, {}});
    if (image.layers.size() > kMaxLayers)
      return fail(Code::kPayloadTooLarge, "the image has too many layers", {{"limit", "layers"}});
  }
  const std::string config_name = text_in(entry, "Config");
  const Blob* config = blobs.find(config_name);
  if (config == nullptr) return fail(Code::kCorrupt, "the archive lacks the image's configuration");
  // Its name is its digest, with or without ".json" and a directory.
  const std::string base = config_name.substr(config_name.rfind('/') + 1),
                    digest = base.substr(0, base.find('.'));
  if (is_sha256_hex(digest) && digest != config->sha256) {
    return fail(Code::kCorrupt, "the image's configuration has other content than its digest says",
                {{"digest", digest}});
  }
  GB_TRYV(apply_config(blobs, *config, architecture, image));
  return image;
}

}  // namespace

std::string host_architecture() {
  struct utsname machine = {};
  ::uname(&machine);
  const std::string name = machine.machine;
  return name == "x86_64" ? "amd64" : name == "aarch64" ? "arm64" : name;
}

Result<OciImage> find_image(const Blobs& blobs, const std::string& architecture) {
  if (const Blob* index_blob = blobs.find("index.json")) {
    GB_TRY(const auto index, parse_object(blobs, *index_blob, "index.json"));
    return image_of_index(blobs, index, architecture, 0);
  }
  if (const Blob* list = blobs.find("manifest.json"))
    return image_of_docker(blobs, *list, architecture);
  return fail(Code::kCorrupt,
              "the archive holds neither index.json nor manifest.json: not a container image");
}

}  // namespace glovebox::image
