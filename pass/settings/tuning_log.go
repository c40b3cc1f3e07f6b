// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// defaultDisabledPasses lose the sharing of a graph with many ways through it (NasNet-A), one after the other, and grow
// it without end.
var defaultDisabledPasses = []string{"EliminateCommonSubexpr", "SimplifyExpr"}

// DefaultDisabledPasses are the passes that every build leaves out unless told otherwise: those of candidates, of
// networks, and of what they are compared with, so that comparisons are fair.
func DefaultDisabledPasses() []string { return slices.Clone(defaultDisabledPasses) }

// databaseFiles are the files of a MetaSchedule database.
var databaseFiles = []string{"database_workload.json", "database_tuning_record.json"}

// TuningDigest checks that path is a tuning log, as python/collage/tuninglog.py takes it: a file of AutoTVM's records,
// or a folder with a MetaSchedule database. It gives the SHA-256 of the content in hexadecimal: two logs with one
// digest make the same code. The error says what is wrong with it.
func TuningDigest(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no such file or folder %s", path)
	}
	if err != nil {
		return "", err
	}
	files := []string{path}
	if info.IsDir() {
		files = nil
		for _, name := range databaseFiles {
			files = append(files, filepath.Join(path, name))
		}
	}
	hash := sha256.New()
	for _, name := range files {
		if err := digestFile(hash, name, !info.IsDir()); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("the folder has no %s, so it is no MetaSchedule database", filepath.Base(name))
			}
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// digestFile adds a file with its length to the hash, and looks at the first line of a file of AutoTVM's.
func digestFile(hash io.Writer, name string, autoTVM bool) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(hash, "%d\n", info.Size())
	content := bufio.NewReaderSize(file, 1<<20)
	if autoTVM {
		if err := checkRecord(content); err != nil {
			return err
		}
	}
	_, err = io.Copy(hash, content)
	return err
}

// checkRecord looks whether what is read begins with one of AutoTVM's records; an empty log is as good.
func checkRecord(content *bufio.Reader) error {
	start, err := content.Peek(1 << 16)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(start), []byte("\n"))
	if len(line) == 0 {
		return nil
	}
	var record struct {
		Input, Config, I json.RawMessage
	}
	err = json.Unmarshal(line, &record)
	switch {
	case err == nil && record.I != nil && record.Config == nil:
		return errors.New("it is a log of TVM's auto-scheduler, which is not supported; AutoTVM's and MetaSchedule's " +
			"are")
	case err != nil || record.Input == nil || record.Config == nil:
		return errors.New("its first line is not one of AutoTVM's records (a JSON object with \"input\" and \"config\")")
	}
	return nil
}

// TunedWord stands in the options of costs of code that a tuning log has a part in.
const TunedWord = "tuned:"

// Tuned is what a log with that digest adds to the options in costs' keys; "" for no log.
func Tuned(digest string) string {
	if digest == "" {
		return ""
	}
	return " " + TunedWord + digest[:16]
}
