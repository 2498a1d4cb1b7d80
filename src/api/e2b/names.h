// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

// Names on this wire and ours.
namespace glovebox::api::e2b {

// This wire's ids are [a-z0-9]+ because host names are split at dashes: "sb-k3v9…" is "sbk3v9…".
std::string wire_id(std::string_view id);
// Back, from "sbk3v9…", "sbk3v9…-<anything>" (old clients append a client id) or our own form. What is no id stays as it is and is
// found nowhere.
std::string native_id(std::string_view wire);

// The template behind a reference: "namespace/alias:tag" without the namespace, and without the tags "latest" and "default";
// names that clients use unasked become ours.
std::string template_name(std::string_view reference);

// The home directory of a user as base templates lay it out: where "~" and relative paths begin.
std::string home_of(std::string_view user);
// A path of this wire as an absolute one: empty is `otherwise`, "~" and relative paths begin at the home. Nothing for "~other".
std::optional<std::string> absolute_path(std::string_view path, std::string_view user, std::string_view otherwise);

}  // namespace glovebox::api::e2b
