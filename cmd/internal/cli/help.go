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
	Examples:  []string{"help compile"},
	New:       func(*pflag.FlagSet) Action { return &helpAction{} },
}

type helpAction struct{}

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

func (*helpAction) Run(s *Session, args []string) error {
	if len(args) == 0 {
		printOverview(s.Stdout)
		return nil
	}
	command, err := lookup(commands(), args[0])
	if err == nil && len(args) > 1 {
		command, err = lookup(command.Parts, args[0]+" "+args[1])
	}
	if err != nil {
		return err
	}
	printHelp(s.Stdout, command)
	return nil
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
	fmt.Fprintln(w, "  collage compile model.onnx --backends tvm,dnnl -o model.tar")
	fmt.Fprintln(w, "  collage run model.tar --repeat 100")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "`collage help COMMAND` says more about each. Failures end with exit code 2.")
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
	column := 0
	for _, word := range strings.Fields(paragraph) {
		switch {
		case column == 0:
			fmt.Fprint(w, indent)
			column = len(indent)
		case column+1+len(word) > textWidth:
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
