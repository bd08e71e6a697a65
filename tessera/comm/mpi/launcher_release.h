// A launcher that waits for machines which do not answer.
#pragma once

namespace tessera::comm::detail {

// Before this process ends its job: leaves a process behind that sees to the end of the launcher (mpirun, or
// its daemon on this machine) which is this process's parent, or a parent of its parent. Where that still
// runs after some seconds, it waits for a machine that it cannot reach: its connections to other machines are
// closed, upon which it ends with the job's exit code. Where the system does not permit that (ptrace_scope),
// or it does not help, it is killed. Does nothing under another launcher. Not for a job on one machine.
void release_launcher();

}  // namespace tessera::comm::detail
