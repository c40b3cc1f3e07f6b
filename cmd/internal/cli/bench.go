// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/internal/atomicfile"
)

var benchCommand = Command{
	Name:      "bench",
	Arguments: "COMMAND",
	Short:     "measure operators on each backend, and networks beside other engines",
	Long: `Measures what can be compared. convs and matmuls: each different operator of a network on each backend, by itself.
kernels: each kernel of our own on a grid of shapes, beside the other backends and the machine's limit. backends: whole networks on each backend alone. all: whole networks, compiled by Collage, beside the engines that people use.
anytime: how fast the fastest executable so far is while collage compile works. without: networks without each kernel of our
own. merge: one table of what several runs of all wrote.

Each prints a table, and writes JSON and a picture where it is told to. The machine, and how busy it was meanwhile, stand in
all three: figures from a busy machine are worth nothing.`,
	Examples: []string{"bench convs --svg convs.svg", "bench matmuls --json matmuls.json", "bench all --rounds 15"},
	Parts: []*Command{&benchConvsCommand, &benchMatmulsCommand, &benchKernelsCommand, &benchBackendsCommand,
		&benchAllCommand, &benchAnytimeCommand, &benchWithoutCommand, &benchMergeCommand},
}

// benchOutput are the flags that say where a report goes.
type benchOutput struct {
	jsonFile, svg  string
	verbose, quiet bool
}

func (o *benchOutput) declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.jsonFile, "json", "", "write all figures to `FILE` (JSON); - for the standard output, in the "+
		"place of the table")
	flags.StringVar(&o.svg, "svg", "", "write a picture to `FILE` (SVG)")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "print each measurement")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
}

func (o *benchOutput) check() error {
	if o.quiet && o.verbose {
		return errors.New("--quiet and --verbose contradict each other")
	}
	if err := checkDifferent(usedFile{"--json", o.jsonFile}, usedFile{"--svg", o.svg}); err != nil {
		return err
	}
	for _, path := range []string{o.jsonFile, o.svg} {
		if path == "" || path == "-" {
			continue
		}
		if err := atomicfile.CheckWritable(path); err != nil {
			return err
		}
	}
	return nil
}

// benchReport is what the parts of bench make.
type benchReport interface {
	WriteText(w io.Writer) error
	// WritePicture writes SVG.
	WritePicture(w io.Writer) error
}

// write writes the report wherever it is wanted.
func (o *benchOutput) write(s *Session, report benchReport) error {
	if o.jsonFile != "" && o.jsonFile != "-" {
		err := atomicfile.Write(o.jsonFile, func(w io.Writer) error { return writeJSON(w, report, " ") })
		if err != nil {
			return err
		}
	}
	if o.svg != "" {
		if err := atomicfile.Write(o.svg, report.WritePicture); err != nil {
			return err
		}
	}
	if o.jsonFile == "-" {
		return s.printJSON(report)
	}
	if err := report.WriteText(s.Stdout); err != nil {
		return err
	}
	for _, path := range []string{o.jsonFile, o.svg} {
		if path != "" {
			fmt.Fprintf(s.Stdout, "wrote %s\n", path)
		}
	}
	return nil
}

// usableBackends are the names of the backends that can be used here, TVM first; the others are told with the reason.
// Those that compute narrowly, or on other devices, are neither: a precision, or a device that is named, offers them.
func usableBackends() (names []string, absent []byoc.Backend, err error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, nil, err
	}
	for _, b := range byoc.All() {
		switch {
		case byoc.PrecisionOf(b) != byoc.F32 || byoc.DeviceOf(b) != byoc.Host:
		case b.TakesAnything():
			names = append([]string{b.Name()}, names...)
		case b.Probe().Usable:
			names = append(names, b.Name())
		default:
			absent = append(absent, b)
		}
	}
	return names, absent, nil
}

// usable says that a backend can be used here; whether TVM can only the Python host knows. One that is not known is
// left to those who check names.
func usable(name string) bool {
	b, err := byoc.Lookup(name)
	return err != nil || b.Compiler() == "" || b.Probe().Usable
}
