// Ends a launcher that waits for machines which do not answer.
#pragma once

namespace tessera::comm::detail {

// Starts a process that stays behind and makes sure that the launcher ends: mpirun, or its daemon on this
// machine, which is an ancestor of this process. Call it before this process ends a job on several machines;
// it is not for a job on one machine.
//
// If the launcher still runs after some seconds, it waits for a machine that it cannot reach. Its connections
// to other machines are then closed, upon which it ends with the job's exit code. If the system does not
// permit that (ptrace_scope), or it does not help, the launcher is killed. Does nothing under launchers other
// than OpenMPI's.
void release_launcher();

}  // namespace tessera::comm::detail
