// NVIDIA's library of collectives, opened at run time: the program is linked with nothing of it.
#pragma once

#include <array>
#include <cstddef>
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

// The functions that are used here, as nccl.h of the versions 2.x declares them (ncclResult_t and
// ncclDataType_t are enums of int). All data goes as bytes, so that no type needs a name.
class NcclLibrary {
 public:
  // Opens `path`, or, where it is empty, libnccl.so.2 where the loader or LibTorch's own folders have it.
  // Throws E-CONFIG-NCCL, in one line, where it is not there, lacks a function or has another version.
  static std::shared_ptr<const NcclLibrary> open(const std::string& path = "");

  // 22809 for 2.28.9
  int version() const { return version_; }
  const std::string& path() const { return path_; }

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
  using Result = int;
  NcclLibrary() = default;
  void check(Result result, const char* function, NcclHandle comm = nullptr) const;
  std::string words_for(Result result, NcclHandle comm) const;

  std::string path_;
  int version_ = 0;
  Result (*get_version_)(int*) = nullptr;
  Result (*get_unique_id_)(NcclId*) = nullptr;
  Result (*comm_init_rank_)(NcclHandle*, int, NcclId, int) = nullptr;
  Result (*comm_destroy_)(NcclHandle) = nullptr;
  Result (*comm_abort_)(NcclHandle) = nullptr;
  Result (*comm_get_async_error_)(NcclHandle, Result*) = nullptr;
  const char* (*get_error_string_)(Result) = nullptr;
  const char* (*get_last_error_)(NcclHandle) = nullptr;
  Result (*group_start_)() = nullptr;
  Result (*group_end_)() = nullptr;
  Result (*all_gather_)(const void*, void*, size_t, int, NcclHandle, NativeStream) = nullptr;
  Result (*broadcast_)(const void*, void*, size_t, int, int, NcclHandle, NativeStream) = nullptr;
  Result (*send_)(const void*, size_t, int, int, NcclHandle, NativeStream) = nullptr;
  Result (*recv_)(void*, size_t, int, int, NcclHandle, NativeStream) = nullptr;
  // Where the library lacks one of these, the first is null.
  Result (*mem_alloc_)(void**, size_t) = nullptr;
  Result (*mem_free_)(void*) = nullptr;
  Result (*comm_register_)(NcclHandle, void*, size_t, void**) = nullptr;
  Result (*comm_deregister_)(NcclHandle, void*) = nullptr;
};

}  // namespace tessera::comm::detail
