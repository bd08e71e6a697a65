// Checks that our declarations of NCCL are those of its header, if this build has found it.
#include "tessera/comm/nccl/nccl_library.h"

#include "tests/testing/header_like.h"

#ifdef TESSERA_HAS_HEADER
#include <nccl.h>

namespace tessera::comm::detail {
namespace {

using testing::is, testing::is_like;

constexpr NcclFunctions kOurs;
static_assert(is_like(kOurs.get_version, ncclGetVersion));
static_assert(is_like(kOurs.get_unique_id, ncclGetUniqueId));
static_assert(is_like(kOurs.comm_init_rank, ncclCommInitRank));
static_assert(is_like(kOurs.comm_destroy, ncclCommDestroy));
static_assert(is_like(kOurs.comm_abort, ncclCommAbort));
static_assert(is_like(kOurs.comm_get_async_error, ncclCommGetAsyncError));
static_assert(is_like(kOurs.get_error_string, ncclGetErrorString));
static_assert(is_like(kOurs.get_last_error, ncclGetLastError));
static_assert(is_like(kOurs.group_start, ncclGroupStart));
static_assert(is_like(kOurs.group_end, ncclGroupEnd));
static_assert(is_like(kOurs.all_gather, ncclAllGather));
static_assert(is_like(kOurs.broadcast, ncclBroadcast));
static_assert(is_like(kOurs.send, ncclSend));
static_assert(is_like(kOurs.recv, ncclRecv));
static_assert(is_like(kOurs.mem_alloc, ncclMemAlloc));
static_assert(is_like(kOurs.mem_free, ncclMemFree));
static_assert(is_like(kOurs.comm_register, ncclCommRegister));
static_assert(is_like(kOurs.comm_deregister, ncclCommDeregister));

static_assert(is(kNcclSuccess, ncclSuccess));
static_assert(is(kNcclInProgress, ncclInProgress));
static_assert(is(kNcclUint8, ncclUint8));
static_assert(sizeof(NcclId::bytes) == NCCL_UNIQUE_ID_BYTES);

}  // namespace
}  // namespace tessera::comm::detail
#endif

static_assert(sizeof(tessera::comm::detail::NcclId) == 128);
TESSERA_HEADER_TEST(NcclHeader, tessera::testing::skip::kNccl)
