// SPDX-License-Identifier: Apache-2.0

// Command collage is the standalone program: it runs exported models with nothing but TVM's runtime library, and
// hands over to Python what needs TVM's compiler. See package cli.
package main

import (
	"os"

	"github.com/collage-tvm/collage/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
