// NVIDIA's library of collectives, opened at run time: the program is linked with nothing of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::comm::detail {

// The id that ncclGetUniqueId() makes for the ranks of one communicator.
struct NcclId {
  std::array<char, 128> bytes{};
};

// These are ncclComm_t and cudaStream_t, as the library takes them.
using NcclHandle = struct ncclComm*;
using NativeStream = void*;

// These follow nccl.h of the versions 2.x, as far as it is used here; its enums are ints. All data goes as
// bytes, so no other data type is needed.
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
  // A library may lack the next four; mem_alloc is null if it lacks any of them.
  NcclResult (*mem_alloc)(void**, size_t) = nullptr;
  NcclResult (*mem_free)(void*) = nullptr;
  NcclResult (*comm_register)(NcclHandle, void*, size_t, void**) = nullptr;
  NcclResult (*comm_deregister)(NcclHandle, void*) = nullptr;
};

class NcclLibrary {
 public:
  // Opens the library at `path`; if that is empty, libnccl.so.2 from the loader's places or LibTorch's own
  // folders. Gives null, and the reason in one line in `why_not`, if there is no library, it lacks a function
  // or its version is not 2.18 or a later 2.
  static std::shared_ptr<const NcclLibrary> open(std::string& why_not, const std::string& path = "");
  // Opens the library as open() does; throws E-CONFIG-NCCL if it cannot.
  static std::shared_ptr<const NcclLibrary> require(const std::string& path = "");

  // The version as NCCL counts: 22809 for 2.28.9.
  size_t version() const { return version_; }

  // If a call fails, the functions below throw Error(Peer) with the library's own words, except async_error()
  // and those that are noexcept.
  NcclId make_id() const;
  NcclHandle init_rank(const NcclId& id, int size, int rank) const;
  void all_gather(const void* input, void* output, size_t num_bytes, NcclHandle comm,
                  NativeStream stream) const;
  // Copies `input` of the root into `output` of all ranks; on the root the two may be the same memory.
  void broadcast(const void* input, void* output, size_t num_bytes, int root, NcclHandle comm,
                 NativeStream stream) const;
  void send(const void* input, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const;
  void recv(void* output, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const;
  void destroy(NcclHandle comm) const;
  // Ends the communicator's operations on the device, and frees it.
  void abort(NcclHandle comm) const noexcept;
  // Allocates memory of the current device as one physical piece, which registration asks for. Gives null if
  // there is none, as in libraries before 2.19. free() takes memory that nothing on the device uses any more.
  void* allocate(size_t num_bytes) const noexcept;
  void free(void* memory) const noexcept;
  // Lets the library use such memory as it does its own buffers, until deregister() or the end of the
  // communicator. The handle is null if the library declines.
  void* register_memory(NcclHandle comm, void* memory, size_t num_bytes) const;
  void deregister(NcclHandle comm, void* registration) const;
  // The error that the communicator has met on the device or on NCCL's threads, in words; empty if there is
  // none.
  std::string async_error(NcclHandle comm) const;

  // The calls that are made while this object lives are one operation, which starts with end(). If an
  // exception comes before end(), the destructor closes the library's group all the same.
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
