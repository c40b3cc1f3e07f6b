// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkStorePlace says why the user's own cost store can be neither written nor made; nil where it can. Unlike a file
// that the user names, its folder need not be there: the first command that measures makes it.
func checkStorePlace(path string) error {
	mode := uint32(unix.R_OK | unix.W_OK)
	at := path
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the cost store %s: %w", path, withoutPath(err))
		}
		at, mode = filepath.Dir(at), unix.W_OK|unix.X_OK
	}
	switch err := unix.Access(at, mode); {
	case err == nil:
		return nil
	case at == path:
		return fmt.Errorf("the cost store %s cannot be written: %w", path, err)
	default:
		return fmt.Errorf("the cost store %s cannot be made in %s: %w", path, at, err)
	}
}

// withoutPath is an error of the file system without the operation and the file that it names.
func withoutPath(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
