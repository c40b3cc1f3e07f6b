// SPDX-License-Identifier: Apache-2.0

// Command collage is the standalone program: it runs exported models with nothing but TVM's runtime library, and
// hands over to Python what needs TVM's compiler. See package cli.
package main

import (
	"os"
	"runtime"

	"github.com/collage-tvm/collage/cmd/internal/cli"
)

// The commands run on the process's first thread, whose memory is the heap: other threads have pieces of 64 MiB at most
// from glibc, and what is larger is mapped anew each time (byoc/runtime/kept_memory.cc).
func init() { runtime.LockOSThread() }

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
