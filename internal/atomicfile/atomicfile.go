// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files that appear whole or not at all.
//
// What comes in: a path and the bytes or the file that shall stand there. What goes out: that file, or an
// error and a folder that looks as it did before, whatever happened on the way (a full disk, an interrupt).
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Write calls write with a file next to path and moves it to path once everything, the disk included, has
// taken it. What is not a regular file (/dev/null, a pipe) is written in place; a symbolic link is followed.
// Errors of the disk name path; an error of write's own is given back as it is.
func Write(path string, write func(io.Writer) error) error {
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	info, err := os.Stat(target)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		file, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return describe(path, target, err)
		}
		return describe(path, target, errors.Join(fill(file, write), file.Close()))
	}
	replaced := err == nil

	temp, err := create(target)
	if err != nil {
		return describe(path, target, err)
	}
	err = fill(temp, write)
	if err == nil && replaced {
		err = temp.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), target)
	}
	if err != nil {
		os.Remove(temp.Name())
		return describe(path, target, err)
	}
	return nil
}

// Copy makes path a copy of the file at from. check is called before the copy appears; an error of it leaves
// path as it was.
func Copy(path, from string, check func() error) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return Write(path, func(w io.Writer) error {
		if _, err := io.Copy(w, source); err != nil {
			return err
		}
		return check()
	})
}

// Rehearse does what Copy does up to where path would become the copy, and leaves nothing behind: whether the disk
// takes it, and how long that takes. What is no regular file is left alone.
func Rehearse(path, from string) error {
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	temp, err := create(target)
	if err != nil {
		return describe(path, target, err)
	}
	defer os.Remove(temp.Name())
	err = fill(temp, func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	})
	if err == nil {
		err = temp.Sync()
	}
	return describe(path, target, errors.Join(err, temp.Close()))
}

// CheckWritable says why a file cannot be written at path, so that it is known before work is done that would
// be lost. It leaves nothing behind.
func CheckWritable(path string) error {
	if path == "" {
		return errors.New("the name of the file to write is empty")
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder; give the name of a file", path)
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil
	}
	folder := filepath.Dir(path)
	info, err = os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot write %s: the folder %s does not exist", path, folder)
	case err != nil:
		return fmt.Errorf("cannot write %s: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("cannot write %s: %s is not a folder", path, folder)
	}
	probe, err := create(path)
	if err != nil {
		return describe(path, path, err)
	}
	_, writeErr := probe.Write([]byte{0})
	closeErr := probe.Close()
	os.Remove(probe.Name())
	return describe(path, path, errors.Join(writeErr, closeErr))
}

// IsDiskFull says whether the error comes from a full disk or a used-up quota.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func fill(file *os.File, write func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(file, 1<<20)
	if err := write(buffered); err != nil {
		return err
	}
	return buffered.Flush()
}

// create makes the file beside target. (os.CreateTemp would make one that only its owner can read, where the
// user's umask should decide.)
func create(target string) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		name := filepath.Join(filepath.Dir(target), fmt.Sprintf("%s%d-%d", beside(target), os.Getpid(), attempt))
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil || attempt == 1000 || !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
}

func beside(target string) string { return "." + filepath.Base(target) + ".partial-" }

// describe names the file that was asked for in place of the one beside it.
func describe(path, target string, err error) error {
	if err == nil {
		return nil
	}
	if IsDiskFull(err) {
		return fmt.Errorf("cannot write %s: %w", path, syscall.ENOSPC)
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) &&
		(pathError.Path == target || strings.HasPrefix(filepath.Base(pathError.Path), beside(target))) {
		return fmt.Errorf("cannot write %s: %w", path, pathError.Err)
	}
	var linkError *os.LinkError
	if errors.As(err, &linkError) {
		return fmt.Errorf("cannot write %s: %w", path, linkError.Err)
	}
	return err
}
