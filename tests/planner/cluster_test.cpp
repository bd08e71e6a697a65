// Tests that clusters are read, and refused with a reason for each mistake.
#include "tessera/planner/cluster.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

#include "tests/testing/paths.h"

namespace tessera::planner {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::string& text) {
  try {
    parse_cluster(text, "c.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error for:\n" << text;
  return "";
}

TEST(ClusterTest, AKnownDeviceNeedsNoRates) {
  const Cluster cluster = parse_cluster(
      "device: h100\nnodes: 4\ndevices_per_node: 8\nnetwork_gb_s: 50\nmemory_gib: 60\nprice_per_hour: 2.5\n",
      "c.yaml");
  EXPECT_EQ(cluster.size(), 32);
  EXPECT_EQ(cluster.device.name, "H100");
  EXPECT_EQ(cluster.device.memory_gib, 60);
  EXPECT_EQ(cluster.device.bf16_tflops, find_device("H100")->bf16_tflops);
  EXPECT_EQ(cluster.network_gb_s, 50);
  EXPECT_EQ(cluster.price_per_hour, 2.5);
}

TEST(ClusterTest, EveryDeviceOfTheTableIsWhole) {
  for (const char* const name : {"A100", "A100 40GB", "a100-80gb", "H100", "H200", "B200", "L40S", "4090",
                                 "RTX 4090", "3090", "T4", "V100", "MI300X", "Titan RTX"})
    EXPECT_NE(find_device(name), nullptr) << name;
  EXPECT_EQ(find_device("H10"), nullptr);
  for (const Device& device : known_devices()) {
    SCOPED_TRACE(device.name);
    EXPECT_EQ(find_device(device.name), &device);
    for (const double rate :
         {device.memory_gib, device.memory_gb_s, device.fp32_tflops, device.fp16_tflops, device.node_gb_s,
          device.host_gb_s, device.watts, device.product_share, device.attention_share, device.flash2_share})
      EXPECT_GT(rate, 0.0);
    // A device with fp8 has twice the rate in it, within what data sheets round.
    if (device.fp8_tflops > 0) {
      EXPECT_NEAR(device.fp8_tflops / device.bf16_tflops, 2.0, 0.05);
    }
  }
}

// `tessera plan --devices` prints the lines.
TEST(ClusterTest, ThePageHasTheDevices) {
  std::ifstream file(testing::source_folder() + "/docs/planner.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(page.find("\n" + join(device_table(), "\n") + "\n"), std::string::npos)
      << join(device_table(), "\n");
}

TEST(ClusterTest, AsYamlAClusterIsReadAgain) {
  Cluster cluster = load_cluster("4x8xA100");
  cluster.device.name = "mine";
  cluster.device.attention_share = 0.45;
  cluster.nvme_gib = 7000;
  cluster.nvme_gb_s = 5.5;
  cluster.kernel_start_us = 0.0;
  const Cluster read = parse_cluster(cluster_yaml(cluster), "c.yaml");
  EXPECT_EQ(cluster_yaml(read), cluster_yaml(cluster));
  EXPECT_EQ(read.size(), 32);
  EXPECT_EQ(read.kernel_start_us, 0.0);
  EXPECT_EQ(read.device.attention_share, 0.45);
  // One device has no link, and its file names none.
  EXPECT_EQ(cluster_yaml(parse_cluster("device: H100\n", "c.yaml")).find("network_gb_s"), std::string::npos);
}

TEST(ClusterTest, NamesStandForClusters) {
  const Cluster cluster = load_cluster("64x8xH100");
  EXPECT_EQ(cluster.nodes, 64);
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_EQ(load_cluster("8xA100-40GB").device.name, "A100-40GB");
  EXPECT_EQ(load_cluster("MI300X").size(), 1);
  for (const std::string name :
       {"0xH100", "8xH1000", "", "x", "8x", "none.yaml", "99999999999999999999xH100", "99999x8xH100"}) {
    SCOPED_TRACE(name);
    EXPECT_THROW(load_cluster(name), Error);
  }
}

TEST(ClusterTest, EveryMistakeHasItsPlaceAndReason) {
  struct Case {
    std::string text;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {"", {"c.yaml", "a cluster is a map"}},
      {"- 1", {"a cluster is a map"}},
      {"nodes: 2\nnetwork_gb_s: 1\n", {"'device' is missing"}},
      {"device: [H100, A100]\n", {"c.yaml:1", "all nodes have the same"}},
      {"device: H100\nnodes: 0\n", {"c.yaml:2", "nodes", "RANGE"}},
      {"device: H100\nnodes: 2.5\nnetwork_gb_s: 1\n", {"c.yaml:2", "whole number"}},
      {"device: H100\nnodes: 2\n", {"network_gb_s", "MISSING"}},
      {"device: H100\nnodes: 2\nnetwork_gb_s: 0\n", {"c.yaml:3", "network_gb_s", "RANGE"}},
      {"device: H100\nmemory_gb_s: 0\n", {"memory_gb_s", "RANGE"}},
      {"device: H100\nmemory_gb_s: -1\n", {"memory_gb_s", "RANGE"}},
      {"device: H100\nmemory_gb_s: .nan\n", {"memory_gb_s", "RANGE"}},
      {"device: H100\nmemory_gb_s: .inf\n", {"memory_gb_s", "RANGE"}},
      {"device: H100\nmemory_gb_s: fast\n", {"not a number"}},
      {"device: H100\nmemory_gb_s: [1]\n", {"not a number"}},
      {"device: H100\nmemory_gib: 0\n", {"memory_gib", "RANGE"}},
      {"device: H100\nnetwork_gbs: 50\n", {"c.yaml:2", "did you mean 'network_gb_s'"}},
      {"device: H100\nnvme_gib: 100\n", {"nvme_gb_s"}},
      {"device: H100\nnvme_gib: 100\nnvme_gb_s: 0\n", {"c.yaml:3", "nvme_gb_s", "RANGE"}},
      {"device: H100\ncontext_gib: 100\n", {"c.yaml:2", "context_gib", "less than the device's 79.2"}},
      {"device: H100\nlink_share: 0\n", {"c.yaml:2", "link_share", "RANGE"}},
      {"device: H100\nkernel_start_us: -1\n", {"c.yaml:2", "kernel_start_us", "RANGE"}},
      {"device: mine\nmemory_gib: 8\n", {"memory_gb_s", "fp32_tflops", "'mine' is none"}},
      {"device: mine\nmemory_gib: 8\nmemory_gb_s: 10\nfp32_tflops: 1\ndevices_per_node: 2\n", {"node_gb_s"}},
      {"device: H100\nnodes: 1\nnodes: 2\n", {"nodes"}},
      {"device: H100\nnodes: 99999\ndevices_per_node: 8\nnetwork_gb_s: 1\n", {"too many devices"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const std::string message = message_of(c.text);
    for (const std::string& part : c.says) EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ClusterTest, AllMistakesAreToldAtOnce) {
  const std::string message = message_of("device: H100\nnodes: 0\nwatt: 3\nmemory_gib: x\n");
  for (const char* const part : {"nodes", "'watt'", "memory_gib"}) EXPECT_THAT(message, HasSubstr(part));
}

}  // namespace
}  // namespace tessera::planner
