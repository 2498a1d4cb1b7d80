// SPDX-License-Identifier: Apache-2.0
#include "registry/bounded_json.h"

#include <boost/json/memory_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/storage_ptr.hpp>
#include <new>

namespace glovebox::registry {
namespace {

class BoundedResource final : public boost::json::memory_resource {
 public:
  explicit BoundedResource(size_t limit) : left_(limit) {}

 private:
  void* do_allocate(size_t size, size_t alignment) override {
    // Boost.JSON frees with another alignment than it allocated with, so only the default one may be used.
    if (size > left_ || alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) throw std::bad_alloc();
    void* const memory = ::operator new(size);
    left_ -= size;
    return memory;
  }
  void do_deallocate(void* memory, size_t size, size_t) override {
    ::operator delete(memory);
    left_ += size;
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  size_t left_;
};

}  // namespace

Result<boost::json::value> parse_bounded_json(std::string_view text, size_t max_memory) {
  boost::json::parse_options options;
  options.allow_invalid_utf8 = true;
  options.max_depth = 64;
  try {
    boost::system::error_code ec;
    auto value = boost::json::parse(text, ec, boost::json::make_shared_resource<BoundedResource>(max_memory), options);
    if (ec) return fail(Code::kCorrupt, "the upstream's JSON does not parse: " + ec.message());
    return value;
  } catch (const std::bad_alloc&) {
    return fail(Code::kCorrupt, "the upstream's JSON takes too much memory");
  }
}

}  // namespace glovebox::registry
