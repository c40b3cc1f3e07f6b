// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// textWidth is where the text of help ends.
const textWidth = 100

var helpCommand = Command{
	Name:      "help",
	Arguments: "[COMMAND]",
	Short:     "say what a command does and which flags it has",
	Long:      "Says what a command does and which flags it has; without a command, which commands there are.",
	Examples:  []string{"help compile", "help --json"},
	New: func(flags *pflag.FlagSet) Action {
		a := &helpAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type helpAction struct{ json bool }

func (*helpAction) Check(_ *Session, args []string) error {
	most := 1
	if len(args) > 0 {
		if command, err := lookup(commands(), args[0]); err == nil && command.Parts != nil {
			most = 2
		}
	}
	if len(args) > most {
		return fmt.Errorf("help takes one command, not %q too", args[most])
	}
	return nil
}

func (a *helpAction) Run(s *Session, args []string) error {
	about := commands()
	if len(args) > 0 {
		command, err := lookup(about, args[0])
		if err == nil && len(args) > 1 {
			command, err = lookup(command.Parts, args[0]+" "+args[1])
		}
		if err != nil {
			return err
		}
		about = []*Command{command}
	}
	switch {
	case a.json:
		return s.printJSON(map[string]any{"commands": describe(about)})
	case len(args) == 0:
		printOverview(s.Stdout)
	default:
		printHelp(s.Stdout, about[0])
	}
	return nil
}

// commandInfo is what --json prints of each command.
type commandInfo struct {
	Name      string     `json:"name"`
	Arguments string     `json:"arguments"`
	Short     string     `json:"short"`
	Long      string     `json:"long"`
	Flags     []flagInfo `json:"flags"`
	Examples  []string   `json:"examples"`
	// Parts are the names of the commands that it consists of, which follow it.
	Parts []string `json:"parts"`
}

type flagInfo struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	// Type is pflag's name of what it takes: bool, int, string, stringSlice, duration, ...
	Type    string `json:"type"`
	Default string `json:"default"`
	Usage   string `json:"usage"`
}

// describe gives the commands, each with its parts after it.
func describe(about []*Command) []commandInfo {
	infos := []commandInfo{}
	for _, c := range about {
		info := commandInfo{Name: c.Name, Arguments: c.Arguments, Short: c.Short, Long: c.Long, Flags: []flagInfo{},
			Examples: append([]string{}, c.Examples...), Parts: []string{}}
		flags := newFlagSet(c)
		if c.New != nil {
			c.New(flags)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			_, usage := pflag.UnquoteUsage(f)
			info.Flags = append(info.Flags, flagInfo{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, usage})
		})
		for _, part := range c.Parts {
			info.Parts = append(info.Parts, part.Name)
		}
		infos = append(append(infos, info), describe(c.Parts)...)
	}
	return infos
}

func printOverview(w io.Writer) {
	fmt.Fprintln(w, "collage places the operators of a network on the backends that run them fastest, and compiles the")
	fmt.Fprintln(w, "result with TVM.")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Usage: collage COMMAND [ARGUMENTS] [FLAGS]")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Commands:")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Short)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Start with:")
	fmt.Fprintln(w, "  collage doctor                                          what is there, what is missing")
	fmt.Fprintln(w, "  collage compile model.onnx --backends tvm,dnnl,native -o model.tar")
	fmt.Fprintln(w, "  collage run model.tar --repeat 100")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "`collage help COMMAND` says more about each. With --json a command prints one JSON document, of which")
	fmt.Fprintln(w, "docs/schemas has the schema.")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Exit codes:")
	for _, e := range exitCodes {
		fmt.Fprintf(w, "  %-4d %s\n", e.code, e.meaning)
	}
}

func printHelp(w io.Writer, c *Command) {
	flags := newFlagSet(c)
	if c.New != nil {
		c.New(flags)
	}
	fmt.Fprintf(w, "Usage: collage %s", c.Name)
	if c.Arguments != "" {
		fmt.Fprintf(w, " %s", c.Arguments)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w)
	for i, paragraph := range strings.Split(strings.TrimSpace(c.Long), "\n\n") {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printWrapped(w, "", paragraph)
	}
	if len(c.Parts) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(w, "Commands:")
		for _, part := range c.Parts {
			fmt.Fprintf(w, "  %-10s %s\n", part.Name, part.Short)
		}
	}
	if usages := flags.FlagUsagesWrapped(textWidth); usages != "" {
		fmt.Fprintln(w)
		fmt.Fprintln(w, "Flags:")
		fmt.Fprint(w, usages)
	}
	if len(c.Examples) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(w, "Examples:")
		for _, e := range c.Examples {
			fmt.Fprintf(w, "  collage %s\n", e)
		}
	}
}

// printWrapped breaks a paragraph's lines at textWidth, each beginning with indent.
func printWrapped(w io.Writer, indent, paragraph string) {
	printHanging(w, indent, indent, paragraph, textWidth)
}

// printHanging breaks a paragraph's lines at width, the first beginning with first, all others with indent.
func printHanging(w io.Writer, first, indent, paragraph string, width int) {
	column := 0
	for _, word := range strings.Fields(paragraph) {
		switch {
		case column == 0:
			fmt.Fprint(w, first)
			column = len(first)
		case column+1+len(word) > width:
			fmt.Fprintf(w, "\n%s", indent)
			column = len(indent)
		default:
			fmt.Fprint(w, " ")
			column++
		}
		fmt.Fprint(w, word)
		column += len(word)
	}
	fmt.Fprintln(w)
}
