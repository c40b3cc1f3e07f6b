// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tree makes cobra's commands of the table: it takes command lines apart and completes them. What they say is this
// program's: help, and what is wrong with a flag.
func (s *Session) tree(args []string) *cobra.Command {
	ours := map[*cobra.Command]*Command{}
	root := &cobra.Command{
		Use:               "collage",
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // completionCommand
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	version := root.Flags().Bool("version", false, "print the version of collage")
	root.RunE = func(_ *cobra.Command, rest []string) error {
		switch {
		case *version:
			return (&versionAction{}).Run(s, nil)
		case len(rest) > 0:
			_, err := lookup(commands(), rest[0])
			return err
		}
		printOverview(s.Stdout)
		return nil
	}
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if command := ours[c]; command != nil {
			printHelp(s.Stdout, command)
		} else {
			printOverview(s.Stdout)
		}
	})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if command := ours[c]; command != nil {
			return flagError(command, c.Flags(), err)
		}
		return fmt.Errorf("the command comes first: collage COMMAND %s (see collage help)", firstFlag(args))
	})
	known := values()
	for _, command := range commands() {
		one := s.branch(command, args, ours, known)
		if command == &helpCommand {
			root.SetHelpCommand(one)
		} else {
			root.AddCommand(one)
		}
	}
	root.SetArgs(append([]string{}, args...)) // of nil cobra would make the process's
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	return root
}

// branch is one command with its parts; ours gets them all. known are the words that flags take.
func (s *Session) branch(command *Command, args []string, ours map[*cobra.Command]*Command,
	known map[string][]string) *cobra.Command {
	words := strings.Fields(command.Name)
	c := &cobra.Command{Use: words[len(words)-1], Short: command.Short, Args: cobra.ArbitraryArgs}
	c.Flags().SortFlags = false
	c.DisableFlagParsing = command.Raw
	ours[c] = command
	if command.Parts != nil {
		for _, part := range command.Parts {
			c.AddCommand(s.branch(part, args, ours, known))
		}
		c.ValidArgsFunction = cobra.NoFileCompletions
		c.RunE = func(_ *cobra.Command, rest []string) error {
			if len(rest) > 0 {
				_, err := lookup(command.Parts, command.Name+" "+rest[0])
				return err
			}
			printHelp(s.Stdout, command)
			return nil
		}
		return c
	}
	action := command.New(c.Flags())
	complete(c, command, known)
	c.RunE = func(_ *cobra.Command, rest []string) error {
		if command.Raw && len(rest) == 1 && (rest[0] == "--help" || rest[0] == "-h") {
			printHelp(s.Stdout, command)
			return nil
		}
		return s.act(command, action, c.Flags(), args, rest)
	}
	return c
}

// act runs a command whose flags are parsed. args is the whole command line, rest what is no flag.
func (s *Session) act(command *Command, action Action, flags *pflag.FlagSet, args, rest []string) error {
	path, set, err := configure(command, flags)
	if err != nil {
		return err
	}
	if quiet := flags.Lookup("quiet"); len(set) > 0 && !s.Hosted && (quiet == nil || quiet.Value.String() == "false") {
		fmt.Fprintf(s.Stderr, "%s: %s\n", path, strings.Join(set, " "))
	}
	if conflict := versionConflict(); s.Hosted && conflict != "" && command.Host == hostOnly {
		return fmt.Errorf("%s: %s (see collage doctor)", conflict, installTogether)
	}
	if err := action.Check(s, rest); err != nil {
		return err
	}
	if command.Host != standalone && !s.Hosted {
		if err := s.handOver(command, args); err != nil {
			return err
		}
	}
	return action.Run(s, rest)
}

func firstFlag(args []string) string {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// newFlagSet is for the flags that help tells of; cobra's commands have sets of their own.
func newFlagSet(command *Command) *pflag.FlagSet {
	flags := pflag.NewFlagSet(command.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	return flags
}
