// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPatience is how long a writer waits for the others. Each holds the lock for one write.
const lockPatience = 30 * time.Second

// lock takes the file's exclusive lock and makes sure that it is the file that the path names now: a store that is
// rewritten (pruned) is replaced under its lock by a new file. The caller holds mu and calls unlock.
func (s *Store) lock() error {
	for {
		if err := lockFile(s.file, s.path); err != nil {
			return err
		}
		here, err := s.file.Stat()
		if err == nil {
			var there os.FileInfo
			if there, err = os.Stat(s.path); err == nil && os.SameFile(here, there) {
				return nil
			}
		}
		s.unlock()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cost: locking the cost store: %w", err)
		}
		if err := s.reopen(); err != nil {
			return err
		}
	}
}

func (s *Store) unlock() { _ = syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN) }

func lockFile(file *os.File, path string) error {
	deadline := time.Now().Add(lockPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		// Not the waiting form: it would hold a thread, and Ctrl-C, for as long as another process likes.
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("cost: locking the cost store %s: %w", path, err)
		case time.Now().After(deadline):
			return fmt.Errorf("cost: another process has held the cost store %s for %v; end it or name another store",
				path, lockPatience)
		default:
			time.Sleep(wait)
		}
	}
}
