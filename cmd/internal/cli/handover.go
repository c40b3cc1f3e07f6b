// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/collage-tvm/collage/cmd/internal/install"
)

// hostModule is the Python module that loads TVM and libcollage and calls collage.Main with its arguments.
const hostModule = "collage.host"

// handOver replaces this process by the Python host, which runs the same command with TVM loaded. It comes back
// with an error, or with nil where there is no host and the command can do without (hostIfThere).
func (s *Session) handOver(command *Command, args []string) error {
	python, err := s.findHost()
	if err != nil {
		if command.Host == hostIfThere {
			return nil
		}
		return fmt.Errorf("%s needs Python with TVM: %w (see collage doctor)", command.Name, err)
	}
	folder, environment, err := handOverTemporary()
	if err != nil {
		return err
	}
	s.removeLater(folder) // should exec fail
	argv := append([]string{python, "-m", hostModule}, args...)
	return fmt.Errorf("cannot run %s: %w", python, syscall.Exec(python, argv, environment))
}

// findHost gives the interpreter that has TVM and this package, without importing either.
func (s *Session) findHost() (string, error) {
	python, err := install.Python()
	if err != nil {
		return "", err
	}
	packages, err := install.ProbePython(s.Context, python)
	if err != nil {
		return "", fmt.Errorf("%w; name another interpreter in %s", err, install.PythonEnv)
	}
	if missing := packages.Missing(); len(missing) > 0 {
		return "", fmt.Errorf("%s has no package %s; install it there, or name another interpreter in %s", packages.Executable,
			strings.Join(missing, " and none named "), install.PythonEnv)
	}
	return python, nil
}
