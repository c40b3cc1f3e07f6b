// SPDX-License-Identifier: Apache-2.0

package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/collage-tvm/collage/cmd/internal/install"
)

// host loads TVM and libcollage in Python and calls collage.Main with its arguments (module collage.host does the
// same). Until collage.Main runs, it answers an interrupt and whatever keeps TVM from being loaded.
//
//go:embed host.py
var host string

// The variables by which host.py comes back to this program for a command that can do without a host: where the
// program is, and why there is no host.
const (
	returnToEnv   = "COLLAGE_RETURN_TO"
	hostFailedEnv = "COLLAGE_HOST_FAILED"
)

// programVersionEnv tells the host the version of the program that started it.
const programVersionEnv = "COLLAGE_PROGRAM_VERSION"

// versionConflict says that this library and the program that handed over to it are of different versions: the one was
// installed or built without the other. "" where they agree, or nobody handed over.
func versionConflict() string {
	program := os.Getenv(programVersionEnv)
	if program == "" || program == Version {
		return ""
	}
	return fmt.Sprintf("libcollage.so is of version %s and the program collage of version %s", Version, program)
}

// handOver replaces this process by the Python host, which runs the same command with TVM loaded. It comes back
// with an error, or with nil where there is no host and the command can do without (hostIfThere).
func (s *Session) handOver(command *Command, args []string) error {
	optional := command.Host == hostIfThere
	if why := os.Getenv(hostFailedEnv); why != "" && optional {
		s.hostFailure = errors.New(why)
		return nil
	}
	python, err := s.findHost()
	if err != nil {
		if optional && s.Context.Err() == nil {
			return nil
		}
		return fmt.Errorf("%s needs Python with TVM: %w (see collage doctor)", command.Name, err)
	}
	folder, environment, err := handOverTemporary()
	if err != nil {
		return err
	}
	s.removeLater(folder) // should exec fail
	if program, err := os.Executable(); err == nil && optional {
		environment = append(environment, returnToEnv+"="+program)
	}
	if err := s.Context.Err(); err != nil {
		return err
	}
	environment = append(environment, programVersionEnv+"="+Version, s.beganSetting())
	argv := append([]string{python, "-c", host}, args...)
	return fmt.Errorf("cannot run %s: %w", python, execute(python, argv, environment))
}

// execute is exec, where of two settings of one variable the later one counts: C, Python and Go take the first of what
// they are given. An interrupt while Python starts waits until host.py can answer it: the mask and what is pending belong
// to the thread and outlive exec.
func execute(program string, argv, environment []string) error {
	environment = (&exec.Cmd{Env: environment}).Environ()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask, before unix.Sigset_t
	for _, number := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		mask.Val[0] |= 1 << (number - 1)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &before); err != nil {
		return err
	}
	err := unix.Exec(program, argv, environment)
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
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
		return "", fmt.Errorf("%s has no package %s; install it there, or name another interpreter in %s",
			packages.Executable,
			strings.Join(missing, " and none named "), install.PythonEnv)
	}
	return python, nil
}
