// NVIDIA's library of collectives, opened at run time: the program is linked with nothing of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::comm::detail {

// What ncclGetUniqueId() makes, for the ranks of one communicator.
struct NcclId {
  std::array<char, 128> bytes{};
};

// ncclComm_t and cudaStream_t, as the library takes them.
using NcclHandle = struct ncclComm*;
using NativeStream = void*;

// What nccl.h of the versions 2.x declares, as far as it is used here. Enums are int there. All data goes as
// bytes, so that no other type needs a name.
enum NcclResult : int32_t { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclDataType : int32_t { kNcclUint8 = 1 };

struct NcclFunctions {
  NcclResult (*get_version)(int*) = nullptr;
  NcclResult (*get_unique_id)(NcclId*) = nullptr;
  NcclResult (*comm_init_rank)(NcclHandle*, int, NcclId, int) = nullptr;
  NcclResult (*comm_destroy)(NcclHandle) = nullptr;
  NcclResult (*comm_abort)(NcclHandle) = nullptr;
  NcclResult (*comm_get_async_error)(NcclHandle, NcclResult*) = nullptr;
  const char* (*get_error_string)(NcclResult) = nullptr;
  const char* (*get_last_error)(NcclHandle) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*all_gather)(const void*, void*, size_t, NcclDataType, NcclHandle, NativeStream) = nullptr;
  NcclResult (*broadcast)(const void*, void*, size_t, NcclDataType, int, NcclHandle, NativeStream) = nullptr;
  NcclResult (*send)(const void*, size_t, NcclDataType, int, NcclHandle, NativeStream) = nullptr;
  NcclResult (*recv)(void*, size_t, NcclDataType, int, NcclHandle, NativeStream) = nullptr;
  // Where the library lacks one of these, the first is null.
  NcclResult (*mem_alloc)(void**, size_t) = nullptr;
  NcclResult (*mem_free)(void*) = nullptr;
  NcclResult (*comm_register)(NcclHandle, void*, size_t, void**) = nullptr;
  NcclResult (*comm_deregister)(NcclHandle, void*) = nullptr;
};

class NcclLibrary {
 public:
  // Opens `path`, or, where it is empty, libnccl.so.2 where the loader or LibTorch's own folders have it.
  // Null where it is not there, lacks a function or is not of version 2.18 or a later 2, with why in one
  // line.
  static std::shared_ptr<const NcclLibrary> open(std::string& why_not, const std::string& path = "");
  // The same; throws E-CONFIG-NCCL where that gives null.
  static std::shared_ptr<const NcclLibrary> require(const std::string& path = "");

  // 22809 for 2.28.9
  size_t version() const { return version_; }

  // Throw Error(Peer) with the library's words where a call fails.
  NcclId make_id() const;
  NcclHandle init_rank(const NcclId& id, int size, int rank) const;
  void all_gather(const void* input, void* output, size_t num_bytes, NcclHandle comm,
                  NativeStream stream) const;
  // From `input` of the root into `output` of all; the root's may be one.
  void broadcast(const void* input, void* output, size_t num_bytes, int root, NcclHandle comm,
                 NativeStream stream) const;
  void send(const void* input, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const;
  void recv(void* output, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const;
  void destroy(NcclHandle comm) const;
  // Ends what the communicator has on the device, and frees it.
  void abort(NcclHandle comm) const noexcept;
  // Memory of the current device in a piece of its own, as registration asks for; null where there is none,
  // as with libraries before 2.19. free() is for memory that nothing on the device uses any more.
  void* allocate(size_t num_bytes) const noexcept;
  void free(void* memory) const noexcept;
  // From here to deregister(), or the end of the communicator, the library may use such memory as it does its
  // own. The handle is null where it declines.
  void* register_memory(NcclHandle comm, void* memory, size_t num_bytes) const;
  void deregister(NcclHandle comm, void* registration) const;
  // What has gone wrong since; empty where nothing has.
  std::string async_error(NcclHandle comm) const;

  // What is called while it lives is one operation, which starts with its end(). Unless that is called, the
  // library is left outside of a group all the same.
  class GroupScope {
   public:
    explicit GroupScope(const NcclLibrary& library);
    ~GroupScope();
    GroupScope(const GroupScope&) = delete;
    GroupScope& operator=(const GroupScope&) = delete;
    void end();

   private:
    const NcclLibrary& library_;
    bool is_open_ = true;
  };

 private:
  NcclLibrary(const NcclFunctions& functions, size_t version) : functions_(functions), version_(version) {}
  void check(NcclResult result, const char* function, NcclHandle comm = nullptr) const;
  std::string words_for(NcclResult result, NcclHandle comm) const;

  const NcclFunctions functions_;
  const size_t version_;
};

}  // namespace tessera::comm::detail
