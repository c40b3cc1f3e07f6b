// SPDX-License-Identifier: Apache-2.0

// Command notices writes the licences of what Collage's binaries hold of others' work: the Go modules that are linked
// into them, Go itself, the libraries that draw pages, and what TVM's folder brings in headers. The build of a wheel runs it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// programs are the packages that are built into binaries.
var programs = []string{"./cmd/libcollage", "./cmd/collage"}

// pageLibraries is where the libraries are that draw pages.
const pageLibraries = "pass/report/page/libraries"

// licenceNames are the files of a module that have to go where its code goes.
var licenceNames = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)(\.(md|txt))?$`)

// A module is a Go module that is linked in.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// linked lists the modules that have a package in one of the programs, by path. root is the project's folder.
func linked(root string) ([]module, error) {
	command := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, programs...)...)
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var modules []module
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var of struct{ Module *module }
		if err := decoder.Decode(&of); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		// The standard library is no module.
		if m := of.Module; m != nil && !m.Main && !slices.Contains(modules, *m) {
			modules = append(modules, *m)
		}
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// licences are the files that tell how a folder's content may be used, a folder "licenses" included.
func licences(dir string) ([]string, error) {
	var files []string
	for _, folder := range []string{dir, filepath.Join(dir, "licenses")} {
		entries, err := os.ReadDir(folder)
		if err != nil && folder == dir {
			return nil, err
		}
		for _, entry := range entries {
			if !entry.IsDir() && (folder != dir || licenceNames.MatchString(entry.Name())) {
				files = append(files, filepath.Join(folder, entry.Name()))
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no licence", dir)
	}
	return files, nil
}

// firstComment is the comment at the head of a C++ header, where small libraries have their licence.
func firstComment(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	_, after, begun := strings.Cut(string(text), "/*")
	comment, _, ended := strings.Cut(after, "*/")
	if !begun || !ended {
		return "", fmt.Errorf("%s does not begin with its licence", path)
	}
	return comment, nil
}

// utf8Of is a text in UTF-8; some licences are written in Latin-1, whose bytes are the first code points.
func utf8Of(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	runes := make([]rune, len(text))
	for i, b := range text {
		runes[i] = rune(b)
	}
	return []byte(string(runes))
}

// write writes all texts to w. tvm is the folder of the package tvm.
func write(w io.Writer, root, tvm string) error {
	section := func(title string, files ...string) error {
		fmt.Fprintf(w, "%s\n%s\n\n", title, strings.Repeat("=", len(title)))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\n\n", bytes.TrimSpace(utf8Of(text)))
		}
		return nil
	}
	modules, err := linked(root)
	if err != nil {
		return err
	}
	for _, m := range modules {
		files, err := licences(m.Dir)
		if err != nil {
			return err
		}
		if err := section(m.Path+" "+m.Version, files...); err != nil {
			return err
		}
	}
	// The page's libraries, where scripts/report.sh has fetched them: else they are in no binary.
	ofPages, err := filepath.Glob(filepath.Join(root, pageLibraries, "*.LICENSE.txt"))
	if err != nil {
		return err
	}
	for _, file := range ofPages {
		if err := section(strings.TrimSuffix(filepath.Base(file), ".LICENSE.txt"), file); err != nil {
			return err
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	if err := section("Go", filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE")); err != nil {
		return err
	}
	third := filepath.Join(tvm, "3rdparty")
	for _, name := range []string{"dlpack", "dmlc-core"} {
		if err := section(name, filepath.Join(third, name, "LICENSE")); err != nil {
			return err
		}
	}
	comment, err := firstComment(filepath.Join(third, "picojson", "picojson.h"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "picojson\n========\n\n%s\n\n", comment)
	return section("Apache TVM, oneDNN, oneTBB", filepath.Join(root, "LICENSE"))
}

func main() {
	tvm := pflag.String("tvm", "", "the folder of the package tvm")
	out := pflag.String("out", "", "the file to write")
	pflag.Parse()
	if *tvm == "" || *out == "" {
		pflag.Usage()
		os.Exit(2)
	}
	var text bytes.Buffer
	err := write(&text, ".", *tvm)
	if err == nil {
		err = os.WriteFile(*out, text.Bytes(), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}
