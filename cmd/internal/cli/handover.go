// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"syscall"

	"github.com/collage-tvm/collage/cmd/internal/install"
)

// hostModule is the Python module that loads TVM and libcollage and calls collage.Main with its arguments.
const hostModule = "collage.host"

// handOver replaces this process by the Python host, which runs the same command with TVM loaded. It comes
// back only with an error.
func (s *Session) handOver(command *Command, args []string) error {
	python, err := install.Python()
	if err != nil {
		return fmt.Errorf("%s needs Python with TVM: %w", command.Name, err)
	}
	packages, err := install.ProbePython(s.Context, python)
	if err != nil {
		return fmt.Errorf("%s needs Python with TVM: %w (%s names the interpreter)", command.Name, err, install.PythonEnv)
	}
	if missing := missingPackages(packages); missing != "" {
		return fmt.Errorf("%s needs Python with TVM: %s has no package %s; install it there, or name another interpreter in %s "+
			"(see collage doctor)", command.Name, packages.Executable, missing, install.PythonEnv)
	}
	s.close()
	argv := append([]string{python, "-m", hostModule}, args...)
	return fmt.Errorf("cannot run %s: %w", python, syscall.Exec(python, argv, os.Environ()))
}

func missingPackages(p *install.Packages) string {
	switch {
	case p.TVM == "" && p.Collage == "":
		return "tvm and none named collage"
	case p.TVM == "":
		return "tvm"
	case p.Collage == "":
		return "collage"
	}
	return ""
}
