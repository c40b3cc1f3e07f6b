// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// The standalone program makes the folder for temporary files and makes it the Python host's TMPDIR, so that what
// TVM, its linker and the workers leave behind when they are stopped in the middle is removed with it. temporaryEnv
// hands it over; ownerFile in it names the process that shall remove it, which exec does not change.
const (
	temporaryEnv = "COLLAGE_TEMPORARY"
	ownerFile    = "owner"
)

// adoptTemporary takes over the folder that the standalone program made.
func (s *Session) adoptTemporary() {
	if given := os.Getenv(temporaryEnv); given != "" && isOurs(given) {
		s.removeLater(given)
	}
}

// temporaryFolder makes a folder that is removed when the session ends, also when it is interrupted.
func (s *Session) temporaryFolder() (string, error) {
	folder, err := newTemporary()
	if err != nil {
		return "", err
	}
	s.removeLater(folder)
	return folder, nil
}

func newTemporary() (string, error) {
	folder, err := os.MkdirTemp("", "collage-")
	if err != nil {
		return "", fmt.Errorf("cannot make a temporary folder: %w (TMPDIR names where)", err)
	}
	return folder, nil
}

// handOverTemporary makes the folder for the Python host and gives the environment that it is to be started with.
func handOverTemporary() (folder string, environment []string, err error) {
	if folder, err = newTemporary(); err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, ownerFile), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		os.RemoveAll(folder)
		return "", nil, fmt.Errorf("cannot write to a temporary folder: %w (TMPDIR names where)", err)
	}
	return folder, append(os.Environ(), temporaryEnv+"="+folder, "TMPDIR="+folder), nil
}

// isOurs says that this process, before exec, made the folder. Nothing else may be removed.
func isOurs(folder string) bool {
	owner, err := os.ReadFile(filepath.Join(folder, ownerFile))
	return err == nil && string(owner) == strconv.Itoa(os.Getpid())
}

func (s *Session) removeLater(folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.temporary = append(s.temporary, folder)
}
