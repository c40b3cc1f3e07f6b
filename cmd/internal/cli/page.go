// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/report/page"
)

// pageFlag is --report: the plan as a page that a browser shows.
type pageFlag struct{ folder string }

// pageFile is its name in the folder.
const pageFile = "index.html"

func (f *pageFlag) declarePage(flags *pflag.FlagSet) {
	flags.StringVar(&f.folder, "report", "",
		"write a page about the plan, which a browser shows without a network, to `DIR`/index.html; DIR is made")
}

// path is where the page is written; "" for nowhere.
func (f *pageFlag) path() string {
	if f.folder == "" {
		return ""
	}
	return filepath.Join(f.folder, pageFile)
}

// checkPage says why no page can be written, before work is done that would be lost.
func (f *pageFlag) checkPage() error {
	if f.folder == "" {
		return nil
	}
	if err := page.Available(); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	info, err := os.Stat(f.folder)
	place := f.path()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		place = f.folder // its own folder must be there, and let a new one be made
	case err != nil:
		return fmt.Errorf("--report: %w", err)
	case !info.IsDir():
		return fmt.Errorf("--report %s is a file; give the name of a folder", f.folder)
	}
	if err := atomicfile.CheckWritable(place); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// writePage writes the page, where one is wanted.
func (f *pageFlag) writePage(content page.Content) error {
	if f.folder == "" {
		return nil
	}
	if err := os.Mkdir(f.folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--report: %w", err)
	}
	err := atomicfile.Write(f.path(), func(w io.Writer) error { return page.Write(w, content) })
	if err != nil {
		return fmt.Errorf("--report %s: %w", f.folder, err)
	}
	return nil
}

// commandLine is what a shell takes for the same again: a command with its arguments and all flags that were typed or
// stood in the configuration.
func commandLine(command *Command, flags *pflag.FlagSet, args []string) string {
	words := append([]string{"collage", command.Name}, quoted(args)...)
	flags.Visit(func(f *pflag.Flag) {
		name := "--" + f.Name
		several, isList := f.Value.(pflag.SliceValue)
		switch {
		case f.Value.Type() == "bool":
			words = append(words, name+map[bool]string{true: "", false: "=false"}[f.Value.String() == "true"])
		case isList && f.Value.Type() == "stringArray":
			for _, value := range several.GetSlice() {
				words = append(words, name, shellWord(value))
			}
		case isList:
			words = append(words, name, shellWord(strings.Join(several.GetSlice(), ",")))
		default:
			words = append(words, name, shellWord(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}

func quoted(args []string) []string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = shellWord(arg)
	}
	return words
}

// shellWord quotes what a shell would not take as one word.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
