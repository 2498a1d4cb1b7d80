// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/e2b/e2b.h"
#include "api/e2b/template_files.h"
#include "api/e2b/template_plan.h"

// Builds of templates. One runs in a sandbox of its tenant, of the strongest runtime that its key has, with the tenant's own network
// and limits: nothing of it ever runs outside. What becomes of that sandbox is kept as a snapshot, which is the template.
namespace glovebox::api::e2b {

// Labels of such a snapshot. A tag is a label of its own, so that the newest with it can be looked for.
inline constexpr const char* kTemplateLabel = "e2b.template";  // its id
inline constexpr const char* kBuildLabel = "e2b.build";
inline constexpr const char* kTagLabel = "e2b.tag.";
// Attribute of the sandbox that a build runs in.
inline constexpr const char* kBuildAttribute = "e2b.build";

struct BuildLogEntry {
  WallTime at;
  std::string level, message, step;
};

struct Build {
  enum class State { kWaiting, kBuilding, kReady, kError };
  std::string id, template_id;
  BuildName name;
  sandbox::Caller caller;
  std::optional<double> cpus;
  std::optional<uint64_t> memory_bytes;
  WallTime created_at;
  State state = State::kWaiting;
  std::string step;  // "base", the number of an instruction from 1, "finalize"
  std::string problem;
  std::vector<BuildLogEntry> logs;

  void log(std::string level, std::string_view message);
};
using BuildPtr = std::shared_ptr<Build>;

// The id that a tenant's template of this name has.
std::string template_id_of(const std::string& tenant, const std::string& name);

// Builds are known until the daemon ends, the newest of each tenant; templates stay. Loop thread only.
class TemplateBuilds {
 public:
  // `parts` outlives it.
  explicit TemplateBuilds(const Parts& parts) : parts_(parts), files_(parts.data_dir + "/e2b-files", parts.pool) {}

  // kRateLimited.
  Result<BuildPtr> add(Build build);
  // kNotFound for another tenant's.
  Result<BuildPtr> find(const std::string& tenant, const std::string& template_id, const std::string& id) const;
  // Whose a template is that a build is known of.
  std::optional<std::string> tenant_of(const std::string& template_id) const;
  // Runs the build, which answers to nobody from then on. kConflict when it runs, or has.
  Result<void> start(const BuildPtr& build, BuildPlan plan, const Executor& executor);
  TemplateFiles& files() { return files_; }

  // Ends the sandboxes of builds that died with an earlier daemon.
  Awaitable<void> clean_up();
  // Ends all; returns when they have ended.
  Awaitable<void> stop();

 private:
  Awaitable<void> run(BuildPtr build, BuildPlan plan);
  void forget_oldest(const std::string& tenant);

  const Parts& parts_;
  TemplateFiles files_;
  std::map<std::string, BuildPtr> builds_;
  bool is_stopping_ = false;
};

}  // namespace glovebox::api::e2b
