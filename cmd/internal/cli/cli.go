// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: one file for each command, and what they share.
//
// What comes in: the arguments, from the standalone program (cmd/collage) or from the Python host, which
// calls the packed function collage.Main in its own process (cmd/libcollage). What goes out: an exit code,
// results on the standard output (one JSON document with --json), and progress and errors on the standard
// error.
//
// A command that needs TVM's compiler needs Python. The standalone program checks its arguments, so that a
// mistake is told at once, and hands over to the Python host; what needs no compiler it does by itself.
package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass/settings"
)

// Exit codes.
const (
	exitOK = 0
	// exitFailure is every other failure that the user is told about: bad input, an interrupt, a full disk.
	exitFailure = 2
	// exitStrict is what --strict does not let pass (settings.StrictError).
	exitStrict = 3
	// exitInterrupted is a second Ctrl-C while a search that the first one ended was writing its result.
	exitInterrupted = 130
)

// exitCodes says what they mean, for help.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "it is done"},
	{exitFailure, "it failed; one line on the standard error says what, where, and what to do"},
	{exitStrict, "what --strict does not let pass: it would have been a warning"},
	{exitInterrupted, "a second Ctrl-C, while the first one's result was being written"},
	{exitBrokenPipe, "whoever read the standard output went away"},
}

// Command is one entry of the table below. To add a command, write a file with its Command and add it there.
type Command struct {
	Name string
	// Arguments is the rest of the usage line ("MODEL -o FILE").
	Arguments string
	// Short is one line for the list of commands; Long says what the command does, in full sentences.
	Short, Long string
	// Examples are command lines without "collage".
	Examples []string
	// Host says where the command runs.
	Host Host
	// Raw says that all that follows the name is another program's, flags too, but for a --help by itself.
	Raw bool
	// New declares the command's flags and gives what runs it.
	New func(flags *pflag.FlagSet) Action
	// Parts are the commands that this one consists of ("db ls"), whose names begin with its name; such a command has
	// no flags and no action.
	Parts []*Command
}

// Host says whether a command runs in the Python host's process, where TVM's compiler is, or in this one.
type Host int

const (
	// standalone: this program does it by itself.
	standalone Host = iota
	// hostIfThere: the Python host knows more, but this program does what it can where there is none.
	hostIfThere
	// hostOnly: it cannot be done without TVM's compiler.
	hostOnly
)

// Action is a command with its flags parsed.
type Action interface {
	// Check looks at everything that can be looked at in no time: arguments that are missing, files that do not
	// exist, folders that cannot be written. It runs before any long work, in the standalone program and again in
	// the Python host.
	Check(s *Session, args []string) error
	// Run does the work. Errors are told to the user as they are: they say what, where, and what to do.
	Run(s *Session, args []string) error
}

// commands are all commands, in the order in which help lists them.
func commands() []*Command {
	return []*Command{&compileCommand, &planCommand, &tuneCommand, &runCommand, &packageCommand, &serveCommand,
		&benchCommand, &explainCommand, &diffCommand, &dbCommand, &doctorCommand, &backendsCommand, &tvmcCommand,
		&completionCommand, &versionCommand, &helpCommand}
}

// Main runs the command line (without the program's name) in the standalone program and gives the exit code.
func Main(args []string) int {
	s := newSession(os.Stdout, os.Stderr)
	return s.main(args)
}

// hostedMain is Main in the process of the Python host, where TVM is loaded.
func hostedMain(args []string) int {
	s := newSession(os.Stdout, os.Stderr)
	s.Hosted = true
	s.adoptTemporary()
	s.adoptBegan()
	return s.main(args)
}

func (s *Session) main(args []string) (code int) {
	defer s.close()
	defer s.recoverPanic(&code)
	s.watchSignals()
	s.answerBrokenPipes()
	err := s.tree(args).ExecuteContext(s.Context)
	if err == nil {
		err = s.output.err
	}
	switch {
	case err == nil:
		return exitOK
	case s.readerIsGone():
		return exitBrokenPipe
	}
	if s.Context.Err() != nil || errors.Is(err, bridge.ErrInterrupted) {
		err = s.interruptError()
	}
	s.printError(err)
	if strict := (*settings.StrictError)(nil); errors.As(err, &strict) {
		return exitStrict
	}
	return exitFailure
}

// recoverPanic is deferred. A panic is a defect of ours: the user gets a message and not a stack, and what is deferred
// after it removes temporary files.
func (s *Session) recoverPanic(code *int) {
	r := recover()
	if r == nil {
		return
	}
	s.printError(fmt.Errorf("internal error: %v", r))
	if os.Getenv("COLLAGE_DEBUG") != "" {
		s.Stderr.Write(debug.Stack())
	} else {
		fmt.Fprintln(s.Stderr, "This is a defect of collage. Set COLLAGE_DEBUG=1 to see where, and please report it.")
	}
	*code = exitFailure
}

func lookup(among []*Command, name string) (*Command, error) {
	var names []string
	for _, c := range among {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if near := nearest.Word(name, names); near != "" {
		return nil, fmt.Errorf("unknown command %q: did you mean %q? (see collage help)", name, near)
	}
	return nil, fmt.Errorf("unknown command %q (commands: %s)", name, strings.Join(names, ", "))
}

// flagError puts what the parser found into the words of this program.
func flagError(command *Command, flags *pflag.FlagSet, err error) error {
	seeHelp := fmt.Sprintf("see collage help %s", command.Name)
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if group := unknown.GetSpecifiedShortnames(); group != "" {
			return fmt.Errorf("%s has no flag -%s (%s)", command.Name, unknown.GetSpecifiedName(), seeHelp)
		}
		var names []string
		flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := nearest.Word(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%s has no flag --%s: did you mean --%s? (%s)", command.Name, unknown.GetSpecifiedName(),
				near,
				seeHelp)
		}
		return fmt.Errorf("%s has no flag --%s (%s)", command.Name, unknown.GetSpecifiedName(), seeHelp)
	}
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		return fmt.Errorf("the flag --%s needs a value (%s)", missing.GetFlag().Name, seeHelp)
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return fmt.Errorf("--%s %s: %s (%s)", invalid.GetFlag().Name, quoteIfNeeded(invalid.GetValue()),
			valueFault(invalid), seeHelp)
	}
	return fmt.Errorf("%w (%s)", err, seeHelp)
}

// valueFault says what kind of value was wanted, in place of the messages of strconv.
func valueFault(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "int", "int64":
		return "not a whole number"
	case "uint64":
		return "not a whole number from 0 up"
	case "float64":
		return "not a number"
	case "bool":
		return "neither true nor false"
	case "duration":
		return `not a duration such as "90s" or "5m"`
	}
	return e.Unwrap().Error()
}

func quoteIfNeeded(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\"'") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// expect checks the number of arguments that are not flags.
func expect(command *Command, args []string, names ...string) error {
	switch {
	case len(args) < len(names):
		return fmt.Errorf("%s needs %s: collage %s %s", command.Name, names[len(args)], command.Name, command.Arguments)
	case len(args) > len(names):
		return fmt.Errorf("%s does not take %q: collage %s %s", command.Name, args[len(names)], command.Name,
			command.Arguments)
	}
	return nil
}
