// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
)

var shells = []string{"bash", "zsh", "fish"}

var completionCommand = Command{
	Name:      "completion",
	Arguments: "SHELL",
	Short:     "print what makes a shell complete command lines of collage",
	Long: `Prints a script for SHELL (bash, zsh or fish). Where the shell has read it, the tab key completes commands, flags,
and what flags take: backends, formats, precisions, files.`,
	Examples: []string{
		"completion bash > ~/.local/share/bash-completion/completions/collage",
		"completion zsh > ~/.zfunc/_collage",
		"completion fish > ~/.config/fish/completions/collage.fish",
	},
	New: func(*pflag.FlagSet) Action { return &completionAction{} },
}

type completionAction struct{}

func (*completionAction) Check(_ *Session, args []string) error {
	if err := expect(&completionCommand, args, "SHELL"); err != nil {
		return err
	}
	if slices.Contains(shells, args[0]) {
		return nil
	}
	if near := nearest.Word(args[0], shells); near != "" {
		return fmt.Errorf("there is no completion for %s: did you mean %s?", quoteIfNeeded(args[0]), near)
	}
	return fmt.Errorf("there is no completion for %s (shells: %s)", quoteIfNeeded(args[0]), strings.Join(shells, ", "))
}

func (*completionAction) Run(s *Session, args []string) error {
	root := s.tree(nil)
	write := map[string]func(io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	}
	return write[args[0]](s.Stdout)
}

// values are what flags take that take one of a few words, or several of them.
func values() map[string][]string {
	var backends, devices []string
	for _, b := range byoc.All() {
		backends = append(backends, b.Name())
		devices = append(devices, byoc.DeviceOf(b))
	}
	slices.Sort(devices)
	devices = slices.Compact(devices)
	methods := []string{settings.BiasesOn, settings.BiasesOff, settings.BiasesAuto}
	return map[string][]string{
		"alone":           backends,
		"backend":         backends,
		"backends":        backends,
		"device":          devices,
		"of":              backends,
		"bias-correction": methods,
		"error-measure":   cost.Measures(),
		"format":          formats,
		"level":           {string(settings.GraphLevel), string(settings.OperatorLevel)},
		"precision":       settings.Precisions(),
		"target":          {"native", "x86-64-v2", "x86-64-v3", "x86-64-v4"},
		"tuner":           tuners,
	}
}

// complete says how a command's flags and arguments are completed, of which known has the words (values); files, where
// nothing else is said.
func complete(c *cobra.Command, command *Command, known map[string][]string) {
	none := cobra.ShellCompDirectiveNoFileComp
	c.Flags().VisitAll(func(f *pflag.Flag) {
		words, few := known[f.Name]
		if command == &dbExportCommand && f.Name == "format" {
			words = []string{"csv", "json"} // which are no model's
		}
		switch {
		case few && f.Value.Type() == "stringSlice":
			_ = c.RegisterFlagCompletionFunc(f.Name, several(words))
		case few:
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, none))
		case f.Value.Type() != "string" && f.Value.Type() != "stringArray":
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
	switch {
	case command == &helpCommand:
		var names []string
		for _, one := range commands() {
			names = append(names, one.Name)
		}
		c.ValidArgsFunction = cobra.FixedCompletions(names, none)
	case command == &completionCommand:
		c.ValidArgsFunction = cobra.FixedCompletions(shells, none)
	case command.Arguments == "":
		c.ValidArgsFunction = cobra.NoFileCompletions
	case strings.HasPrefix(command.Arguments, "PLAN"):
		c.ValidArgsFunction = cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveFilterFileExt)
	}
}

// several completes the last of words with commas between them, to one that is not yet there.
func several(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		at := strings.LastIndexByte(typed, ',') + 1
		before := strings.Split(typed[:at], ",")
		var lines []string
		for _, word := range words {
			if strings.HasPrefix(word, typed[at:]) && !slices.Contains(before, word) {
				lines = append(lines, typed[:at]+word)
			}
		}
		return lines, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
