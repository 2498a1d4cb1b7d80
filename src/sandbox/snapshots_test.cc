// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {

using channel::Frame;
using channel::Type;
using channel::testing::eventually;
using testing::FakeRuntime;
using testing::World;
using Tier = runtime::Tier;
namespace fs = std::filesystem;

size_t files_in(const std::string& directory) {
  std::error_code ec;
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory, ec), fs::directory_iterator()));
}

class SnapshotsTest : public ::testing::TestWithParam<Tier> {
 protected:
  SnapshotsTest() : world(Config{}, GetParam()) {}

  Snapshots& snapshots() { return world.manager().snapshots(); }
  bool keeps_memory() const { return GetParam() == Tier::kGvisor; }
  std::string snapshots_directory() { return world.config().data_dir + "/snapshots"; }
  std::string images_directory() { return world.config().data_dir + "/hibernated"; }

  Awaitable<std::string> create() {
    const auto created = co_await world.create();
    GB_ASSERT(created.has_value());
    co_return created->id;
  }
  Awaitable<SnapshotInfo> snapshot(std::string id, SnapshotSpec spec = {}) {
    auto made = co_await snapshots().snapshot(world.caller, id, std::move(spec));
    if (!made) std::fprintf(stderr, "snapshot: %s\n", made.error().message.c_str());
    GB_ASSERT(made.has_value());
    co_return *made;
  }
  Awaitable<Result<SandboxInfo>> start_from(std::string snapshot_id) {
    CreateSpec spec;
    spec.snapshot = snapshot_id;
    return world.create(spec);
  }
  Awaitable<Result<SandboxInfo>> hibernate(std::string id) { return snapshots().hibernate(world.caller, id, {}); }

  World world;
};

INSTANTIATE_TEST_SUITE_P(Tiers, SnapshotsTest, ::testing::Values(Tier::kContainer, Tier::kGvisor),
                         [](const auto& tier) { return std::string(tier_name(tier.param)); });

TEST_P(SnapshotsTest, IsMadeWhileTheSandboxGoesOn) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    SnapshotSpec spec;
    spec.name = "first";
    spec.labels = {{"a", "b"}};
    const auto made = co_await snapshot(id, spec);
    EXPECT_EQ(made.state, "ready");
    EXPECT_EQ(made.name, "first");
    EXPECT_EQ(made.source_sandbox, id);
    EXPECT_EQ(made.kept, keeps_memory() ? runtime::Kept::kMemoryAndFiles : runtime::Kept::kFiles);
    EXPECT_EQ(made.stall.count(), keeps_memory() ? 42 : 7);  // the agent's word, where it was asked to hold still
    EXPECT_EQ(made.parts.size(), 1u);
    EXPECT_EQ(made.parts[0].sha256.size(), 64u);
    EXPECT_EQ(world.info(id).state, State::kReady);
    const auto ran = co_await world.exec(id, "print x");
    EXPECT_TRUE(co_await ran->wait(after(Millis(60'000))));
    EXPECT_TRUE(co_await snapshots().verify_snapshot(world.caller, made.id));
  });
}

TEST_P(SnapshotsTest, AreListedChangedAndDeletedByTheirTenantOnly) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    const auto one = co_await snapshot(id), two = co_await snapshot(id);
    SnapshotFilter filter;
    filter.limit = 1;
    auto page = snapshots().list_snapshots(world.caller, filter);
    EXPECT_EQ(page->items.size(), 1u);
    filter.cursor = page->next_cursor;
    EXPECT_EQ(snapshots().list_snapshots(world.caller, filter)->items.size(), 1u);
    Caller other = world.caller;
    other.tenant = "other";
    EXPECT_EQ(snapshots().get_snapshot(other, one.id).error().code, Code::kSnapshotNotFound);
    auto stolen = co_await snapshots().delete_snapshot(other, one.id);
    EXPECT_EQ(stolen.error().code, Code::kSnapshotNotFound);
    auto named = co_await snapshots().update_snapshot(world.caller, one.id, "named", StringMap{{"k", "v"}});
    EXPECT_EQ(named->name, "named");
    SnapshotFilter by_label;
    by_label.labels = {{"k", "v"}};
    EXPECT_EQ(snapshots().list_snapshots(world.caller, by_label)->items.size(), 1u);
    EXPECT_TRUE(co_await snapshots().delete_snapshot(world.caller, one.id));
    EXPECT_TRUE(co_await snapshots().delete_snapshot(world.caller, two.id));
    EXPECT_EQ(files_in(snapshots_directory()), 0u);
  });
}

TEST_P(SnapshotsTest, SandboxesStartFromThemWithWhatTheCallerSays) {
  world.run([&]() -> Awaitable<void> {
    const auto made = co_await snapshot(co_await create());
    CreateSpec spec;
    spec.snapshot = made.id;
    spec.env = {{"A", "1"}};
    spec.memory_bytes = 512ull << 20;
    const auto copy = co_await world.create(spec);
    EXPECT_TRUE(copy.has_value());
    EXPECT_EQ(copy->started_from, "snapshot");
    EXPECT_EQ(copy->snapshot_id, made.id);
    EXPECT_EQ(copy->env.at("A"), "1");
    EXPECT_EQ(copy->limits.memory_bytes, 512ull << 20);
    EXPECT_EQ(world.runtime().restores, 1);
    spec.memory_bytes = 16ull << 20;
    const auto small = co_await world.create(spec);
    EXPECT_EQ(small.error().code, Code::kInvalidArgument);
  });
}

TEST_P(SnapshotsTest, AFailedOneLeavesNothing) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    world.runtime().fail_at = FakeRuntime::Step::kSnapshot;
    const auto made = co_await snapshots().snapshot(world.caller, id, {});
    EXPECT_FALSE(made.has_value());
    EXPECT_TRUE(snapshots().list_snapshots(world.caller, {})->items.empty());
    EXPECT_EQ(files_in(snapshots_directory()), 0u);
    world.runtime().fail_at = FakeRuntime::Step::kNone;
    const auto ran = co_await world.exec(id, "exit 0");  // and its agent is spoken to again
    EXPECT_TRUE(co_await ran->wait(after(Millis(60'000))));
  });
}

TEST_P(SnapshotsTest, ChangedBytesAreRefusedBeforeAnythingStarts) {
  world.run([&]() -> Awaitable<void> {
    const auto made = co_await snapshot(co_await create());
    const int before = world.runtime().starts;
    std::ofstream(snapshots_directory() + "/" + made.id + "/state") << "of xx-aaaaaaaaaaaa";
    const auto copy = co_await start_from(made.id);
    EXPECT_EQ(copy.error().code, Code::kCorrupt);
    EXPECT_EQ(world.runtime().starts, before);
    auto verified = co_await snapshots().verify_snapshot(world.caller, made.id);
    EXPECT_EQ(verified.error().code, Code::kCorrupt);
  });
}

TEST_P(SnapshotsTest, AnotherEngineIsRefusedBeforeAnythingStarts) {
  world.run([&]() -> Awaitable<void> {
    const auto made = co_await snapshot(co_await create());
    const int before = world.runtime().starts;
    world.runtime().is_other_engine = true;
    const auto copy = co_await start_from(made.id);
    EXPECT_EQ(copy.error().code, Code::kSnapshotMismatch);
    EXPECT_EQ(world.runtime().starts, before);
  });
}

TEST_P(SnapshotsTest, ACopyThatConfirmsNothingIsNotHandedOut) {
  world.run([&]() -> Awaitable<void> {
    const auto made = co_await snapshot(co_await create());
    world.intercept = [](channel::testing::Peer& peer, Frame& frame) -> Awaitable<bool> {
      if (frame.type != Type::kHello) co_return false;
      const size_t at = frame.payload.find("\"resumed\"");
      co_await peer.write(channel::testing::hello_answer(frame.payload.substr(0, at), "[]"));
      co_return true;
    };
    const auto copy = co_await start_from(made.id);
    EXPECT_EQ(copy.error().code, Code::kStartFailed);
    EXPECT_EQ(world.runtime().ids().size(), 1u) << "the source alone";
  });
}

TEST_P(SnapshotsTest, TheLimitOfBytesHolds) {
  world.next_config().max_snapshot_bytes = 1;
  world.restart();
  world.run([&]() -> Awaitable<void> {
    const auto made = co_await snapshots().snapshot(world.caller, co_await create(), {});
    EXPECT_EQ(made.error().code, Code::kCapacity);
    EXPECT_EQ(files_in(snapshots_directory()), 0u);
  });
}

TEST_P(SnapshotsTest, MemoryCanBeInsistedOn) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    SnapshotSpec spec;
    spec.require = runtime::Kept::kMemoryAndFiles;
    const auto made = co_await snapshots().snapshot(world.caller, id, spec);
    EXPECT_EQ(made.has_value(), keeps_memory());
    if (!made) EXPECT_EQ(made.error().code, Code::kUnsupported);
  });
}

TEST_P(SnapshotsTest, OutliveTheDaemonAndHalfMadeOnesAreSwept) {
  std::string id;
  world.run([&]() -> Awaitable<void> { id = (co_await snapshot(co_await create())).id; });
  fs::create_directories(snapshots_directory() + "/snap-halfmade.draft");
  fs::create_directories(images_directory() + "/sb-unknown");
  world.restart();
  EXPECT_EQ(files_in(snapshots_directory()), 1u);
  EXPECT_EQ(files_in(images_directory()), 0u);
  world.run([&]() -> Awaitable<void> {
    const auto copy = co_await start_from(id);
    EXPECT_TRUE(copy.has_value());
  });
}

TEST_P(SnapshotsTest, AForkIsAllOrNothing) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    ForkSpec spec;
    spec.count = 4;
    const auto children = co_await snapshots().fork(world.caller, id, spec);
    EXPECT_TRUE(children.has_value());
    EXPECT_EQ(children->size(), 4u);
    std::set<std::string> ids;
    for (const auto& child : *children) {
      EXPECT_EQ(child.state, State::kReady);
      EXPECT_EQ(child.started_from, "fork");
      ids.insert(child.id);
    }
    EXPECT_EQ(ids.size(), 4u);
    EXPECT_EQ(files_in(snapshots_directory()), 0u);
    world.runtime().fail_at = FakeRuntime::Step::kStart;
    const auto failed = co_await snapshots().fork(world.caller, id, spec);
    EXPECT_EQ(failed.error().code, Code::kStartFailed);
    EXPECT_EQ(world.runtime().ids().size(), 5u);
    EXPECT_EQ(files_in(snapshots_directory()), 0u);
  });
}

TEST_P(SnapshotsTest, AForkThatDoesNotFitTakesNoPlace) {
  world.next_config().max_sandboxes = 3;
  world.restart();
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    ForkSpec spec;
    spec.count = 3;
    const auto refused = co_await snapshots().fork(world.caller, id, spec);
    EXPECT_EQ(refused.error().code, Code::kCapacity);
    spec.count = 2;
    const auto children = co_await snapshots().fork(world.caller, id, spec);
    EXPECT_TRUE(children.has_value());
  });
}

TEST_P(SnapshotsTest, AHibernatedSandboxHasNoEngineUntilItIsUsed) {
  std::string id;
  world.run([&]() -> Awaitable<void> {
    id = co_await create();
    const auto info = co_await hibernate(id);
    EXPECT_TRUE(info.has_value());
    EXPECT_EQ(info->state, State::kPaused);
    EXPECT_TRUE(info->paused->hibernated);
    EXPECT_TRUE(world.runtime().ids().empty());
    EXPECT_TRUE(co_await hibernate(id)) << "repeated";
  });
  world.restart();
  world.run([&]() -> Awaitable<void> {
    EXPECT_EQ(world.info(id).state, State::kPaused);
    const auto ran = co_await world.exec(id, "exit 0");
    EXPECT_TRUE(co_await ran->wait(after(Millis(60'000))));
    EXPECT_EQ(world.info(id).state, State::kReady);
    EXPECT_FALSE(world.info(id).paused.has_value());
    EXPECT_EQ(files_in(images_directory()), 0u);
  });
}

TEST_P(SnapshotsTest, AResumeThatFailsLeavesItHibernated) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    EXPECT_TRUE(co_await hibernate(id));
    world.runtime().fail_at = FakeRuntime::Step::kStart;
    const auto failed = co_await static_cast<SandboxService&>(world.manager()).resume(world.caller, id);
    EXPECT_EQ(failed.error().code, Code::kStartFailed);
    EXPECT_EQ(world.info(id).state, State::kPaused);
    world.runtime().fail_at = FakeRuntime::Step::kNone;
    const auto resumed = co_await static_cast<SandboxService&>(world.manager()).resume(world.caller, id);
    EXPECT_EQ(resumed->state, State::kReady);
  });
}

Awaitable<void> resume_one(World& world, std::string id) {
  (void)co_await static_cast<SandboxService&>(world.manager()).resume(world.caller, id);
}

TEST_P(SnapshotsTest, HibernatedSandboxesAwakeInTurns) {
  world.run([&]() -> Awaitable<void> {
    const auto places = static_cast<size_t>(world.config().parallel_starts);
    std::vector<std::string> ids;
    for (size_t i = 0; i < places + 2; ++i) ids.push_back(co_await create());
    for (const auto& id : ids) EXPECT_TRUE(co_await hibernate(id));
    world.runtime().hold_starts();
    for (const auto& id : ids) spawn(world.executor(), "resume", resume_one(world, id));
    EXPECT_TRUE(co_await eventually([&] { return world.runtime().waiting_starts() == world.config().parallel_starts; }));
    co_await sleep_for(Millis(50));
    EXPECT_EQ(world.runtime().waiting_starts(), world.config().parallel_starts);
    EXPECT_TRUE(co_await world.manager().kill(world.caller, ids.back())) << "its turn had not come";
    world.runtime().release_starts();
    ids.pop_back();
    EXPECT_TRUE(co_await eventually([&] {
      return std::all_of(ids.begin(), ids.end(), [&](const auto& id) { return world.info(id).state == State::kReady; });
    }));
    EXPECT_EQ(world.runtime().ids().size(), ids.size());
  });
}

TEST_P(SnapshotsTest, AHibernatedSandboxCanBeKilled) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    EXPECT_TRUE(co_await hibernate(id));
    const auto killed = co_await world.manager().kill(world.caller, id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    EXPECT_EQ(files_in(images_directory()), 0u);
  });
}

TEST_P(SnapshotsTest, ExecutionsEndWhereMemoryIsNotKept) {
  if (keeps_memory()) GTEST_SKIP() << "their processes go on";
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    const auto running = co_await world.exec(id, "hang");
    EXPECT_TRUE(co_await hibernate(id));
    EXPECT_TRUE(co_await running->wait(after(Millis(60'000))));
    EXPECT_EQ(running->info().outcome->type, "sandbox_ended");
  });
}

TEST_P(SnapshotsTest, ResetKeepsTheIdAndHoldsTheSnapshot) {
  world.run([&]() -> Awaitable<void> {
    const auto id = co_await create();
    const auto none = co_await snapshots().reset(world.caller, id, "");
    EXPECT_EQ(none.error().code, Code::kInvalidArgument);
    const auto made = co_await snapshot(id);
    const auto running = co_await world.exec(id, "hang");
    const auto reset = co_await snapshots().reset(world.caller, id, made.id);
    EXPECT_TRUE(reset.has_value());
    EXPECT_EQ(reset->id, id);
    EXPECT_EQ(reset->state, State::kReady);
    EXPECT_EQ(reset->snapshot_id, made.id);
    EXPECT_TRUE(co_await running->wait(after(Millis(60'000))));
    EXPECT_EQ(running->info().outcome->type, "sandbox_ended");
    const auto again = co_await snapshots().reset(world.caller, id, "");
    EXPECT_TRUE(again.has_value()) << "to the same one";
    EXPECT_TRUE(co_await snapshots().delete_snapshot(world.caller, made.id)) << "it is used no more";
  });
}

TEST_P(SnapshotsTest, TheEndOfTheLifetimeCanHibernate) {
  world.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.lifetime = Millis(200);
    spec.on_timeout = OnTimeout::kHibernate;
    const auto id = (co_await world.create(spec))->id;
    EXPECT_TRUE(co_await channel::testing::eventually([&] { return world.info(id).state == State::kPaused; }));
    EXPECT_TRUE(world.info(id).paused->hibernated);
    EXPECT_EQ(world.info(id).paused->cause, "lifetime");
  });
}

}  // namespace
}  // namespace glovebox::sandbox
