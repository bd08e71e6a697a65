#include "tessera/comm/nccl/nccl_library.h"

#include <vector>

#include "tessera/core/cuda_library.h"
#include "tessera/core/error.h"
#include "tessera/core/shared_library.h"

namespace tessera::comm::detail {
namespace {

constexpr char kName[] = "libnccl.so.2";

// Gives the paths to try, in this order. A library that is loaded already, as libtorch_cuda's own is, is
// found by its name.
std::vector<std::string> candidates() {
  std::vector<std::string> paths = {kName};
  // A wheel of torch lies beside those of NVIDIA: torch/lib and nvidia/nccl/lib.
  if (const std::string folder = cuda::libtorch_folder(); !folder.empty())
    for (const char* place : {"/libnccl.so.2", "/../../nvidia/nccl/lib/libnccl.so.2"})
      paths.push_back(folder + place);
  return paths;
}

}  // namespace

std::shared_ptr<const NcclLibrary> NcclLibrary::open(std::string& why_not, const std::string& path) {
  SharedLibrary library(path.empty() ? candidates() : std::vector<std::string>{path});
  NcclFunctions found;
  library.find(found.get_version, "ncclGetVersion");
  library.find(found.get_unique_id, "ncclGetUniqueId");
  library.find(found.comm_init_rank, "ncclCommInitRank");
  library.find(found.comm_destroy, "ncclCommDestroy");
  library.find(found.comm_abort, "ncclCommAbort");
  library.find(found.comm_get_async_error, "ncclCommGetAsyncError");
  library.find(found.get_error_string, "ncclGetErrorString");
  library.find(found.get_last_error, "ncclGetLastError");
  library.find(found.group_start, "ncclGroupStart");
  library.find(found.group_end, "ncclGroupEnd");
  library.find(found.all_gather, "ncclAllGather");
  library.find(found.broadcast, "ncclBroadcast");
  library.find(found.send, "ncclSend");
  library.find(found.recv, "ncclRecv");
  const bool registers = library.has(found.mem_alloc, "ncclMemAlloc") &&
                         library.has(found.mem_free, "ncclMemFree") &&
                         library.has(found.comm_register, "ncclCommRegister") &&
                         library.has(found.comm_deregister, "ncclCommDeregister");
  if (!registers) found.mem_alloc = nullptr;
  int version = 0;  // stays 0 if the library cannot tell
  if (library.is_usable()) {
    static_cast<void>(found.get_version(&version));
    library.expect_version(static_cast<size_t>(version), 21800);
  }
  why_not = library.why_not();
  if (!library.is_usable()) return nullptr;
  return std::shared_ptr<const NcclLibrary>(new NcclLibrary(found, static_cast<size_t>(version)));
}

std::shared_ptr<const NcclLibrary> NcclLibrary::require(const std::string& path) {
  std::string why_not;
  if (auto opened = open(why_not, path)) return opened;
  throw Error(ErrorKind::Config, "NCCL", "several ranks on CUDA devices need NCCL, which cannot be used")
      .got(why_not)
      .need((path.empty() ? std::string(kName) : path) + " of version 2.18 or a later 2")
      .hint("it comes with torch for CUDA (nvidia/nccl/lib); LD_LIBRARY_PATH can name its folder");
}

void NcclLibrary::check(NcclResult result, const char* function, NcclHandle comm) const {
  if (result == kNcclSuccess) return;
  throw Error(ErrorKind::Peer, "NCCL", std::string(function) + " failed: " + words_for(result, comm));
}

std::string NcclLibrary::words_for(NcclResult result, NcclHandle comm) const {
  std::string words = functions_.get_error_string(result);
  if (const char* more = functions_.get_last_error(comm); more != nullptr && *more != '\0')
    words += std::string(": ") + more;
  return words;
}

NcclId NcclLibrary::make_id() const {
  NcclId id;
  check(functions_.get_unique_id(&id), "ncclGetUniqueId");
  return id;
}

NcclHandle NcclLibrary::init_rank(const NcclId& id, int size, int rank) const {
  NcclHandle comm = nullptr;
  try {
    check(functions_.comm_init_rank(&comm, size, id, rank), "ncclCommInitRank");
  } catch (Error& error) {
    throw error.hint("every rank needs its own device; NCCL_DEBUG=INFO prints details");
  }
  return comm;
}

void NcclLibrary::all_gather(const void* input, void* output, size_t num_bytes, NcclHandle comm,
                             NativeStream stream) const {
  check(functions_.all_gather(input, output, num_bytes, kNcclUint8, comm, stream), "ncclAllGather", comm);
}

void NcclLibrary::broadcast(const void* input, void* output, size_t num_bytes, int root, NcclHandle comm,
                            NativeStream stream) const {
  check(functions_.broadcast(input, output, num_bytes, kNcclUint8, root, comm, stream), "ncclBroadcast",
        comm);
}

void NcclLibrary::send(const void* input, size_t num_bytes, int peer, NcclHandle comm,
                       NativeStream stream) const {
  check(functions_.send(input, num_bytes, kNcclUint8, peer, comm, stream), "ncclSend", comm);
}

void NcclLibrary::recv(void* output, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const {
  check(functions_.recv(output, num_bytes, kNcclUint8, peer, comm, stream), "ncclRecv", comm);
}

void* NcclLibrary::allocate(size_t num_bytes) const noexcept {
  void* memory = nullptr;
  return functions_.mem_alloc != nullptr && functions_.mem_alloc(&memory, num_bytes) == kNcclSuccess
             ? memory
             : nullptr;
}

void NcclLibrary::free(void* memory) const noexcept { static_cast<void>(functions_.mem_free(memory)); }

void* NcclLibrary::register_memory(NcclHandle comm, void* memory, size_t num_bytes) const {
  void* registration = nullptr;
  check(functions_.comm_register(comm, memory, num_bytes, &registration), "ncclCommRegister", comm);
  return registration;
}

void NcclLibrary::deregister(NcclHandle comm, void* registration) const {
  check(functions_.comm_deregister(comm, registration), "ncclCommDeregister", comm);
}

void NcclLibrary::destroy(NcclHandle comm) const { check(functions_.comm_destroy(comm), "ncclCommDestroy"); }

void NcclLibrary::abort(NcclHandle comm) const noexcept { static_cast<void>(functions_.comm_abort(comm)); }

std::string NcclLibrary::async_error(NcclHandle comm) const {
  NcclResult state = kNcclSuccess;
  const NcclResult result = functions_.comm_get_async_error(comm, &state);
  if (result != kNcclSuccess) state = result;
  return state == kNcclSuccess || state == kNcclInProgress ? "" : words_for(state, comm);
}

NcclLibrary::GroupScope::GroupScope(const NcclLibrary& library) : library_(library) {
  library_.check(library_.functions_.group_start(), "ncclGroupStart");
}

NcclLibrary::GroupScope::~GroupScope() {
  if (is_open_) static_cast<void>(library_.functions_.group_end());
}

void NcclLibrary::GroupScope::end() {
  is_open_ = false;
  library_.check(library_.functions_.group_end(), "ncclGroupEnd");
}

}  // namespace tessera::comm::detail
