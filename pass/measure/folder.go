// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"syscall"
)

const (
	folderPrefix = "collage-measure-"
	lockName     = "in-use"
)

// makeFolder makes a folder for workers below parent. Folders that killed processes have left there are removed: they
// are those whose lock nobody holds. The caller holds the lock for as long as it keeps the file open.
func makeFolder(parent string) (dir string, lock *os.File, err error) {
	old, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*", lockName))
	for _, path := range old {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			if take(f) == nil {
				_ = os.RemoveAll(filepath.Dir(path))
			}
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp(parent, folderPrefix); err != nil {
		return "", nil, err
	}
	// It is locked before it has the name that others look for.
	if lock, err = os.CreateTemp(dir, lockName+"-"); err == nil {
		if err = take(lock); err == nil {
			err = os.Rename(lock.Name(), filepath.Join(dir, lockName))
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, lock, nil
}

func take(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
