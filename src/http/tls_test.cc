// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <fstream>

#include "http/server.h"

// That TLS works is shown by tests/integration/test_previews.py, against the TLS of others.
namespace glovebox::http {
namespace {

TEST(Tls, CertificatesThatCannotBeUsedAreRefusedByName) {
  boost::asio::io_context loop;
  const std::string garbage = ::testing::TempDir() + "/garbage-" + std::to_string(::getpid()) + ".pem";
  std::ofstream(garbage) << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  for (const std::string& file : {garbage, std::string("/nowhere/cert.pem")}) {
    ServerConfig config;
    config.listen = "127.0.0.1:0";
    config.tls_cert = config.tls_key = file;
    const auto server = Server::listen(loop.get_executor(), config, [](Exchange&) -> Awaitable<void> { co_return; });
    ASSERT_FALSE(server.has_value());
    EXPECT_EQ(server.error().code, Code::kInvalidArgument);
    EXPECT_NE(server.error().message.find(file), std::string::npos);
  }
  ::unlink(garbage.c_str());
}

}  // namespace
}  // namespace glovebox::http
