// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/deployment"
	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

var packageCommand = Command{
	Name:      "package",
	Arguments: "MODEL -o FOLDER",
	Short:     "collect what a machine without compilers needs to run a model",
	Long: `Writes a folder with an exported model and all that it runs on: the program collage, TVM's runtime, the plug-ins
and libraries that were in the process when the model had run once, small programs in C, C++, Go and Python that load it, a
container file, and manifest.json, which says what is in it and what it asks of the machine. Nothing in it is looked for
elsewhere, but for the C library and its like, which every distribution has.

FOLDER is made, or is empty. ` + "`collage run FOLDER`" + ` runs it, as does the program inside: ./collage run .

The model is run once, on random inputs or on those of --inputs: an engine may load a part of itself only when it is
needed. What engines choose by the processor is not seen on one machine; oneMKL's parts for other processors are taken along
all the same.`,
	Examples: []string{"package model.tar -o model", "package model.so -o model --inputs x.npz"},
	New: func(flags *pflag.FlagSet) Action {
		a := &packageAction{}
		flags.StringVarP(&a.output, "output", "o", "", "write the package to `FOLDER`")
		flags.StringVar(&a.run.inputs, "inputs", "", "run it once on the inputs in `FILE` (.npz); without it they are random")
		flags.StringVar(&a.run.runtime, "tvm-runtime", "",
			"TVM's runtime library, `FILE`; without it, $COLLAGE_TVM_RUNTIME or the tvm package's")
		flags.BoolVar(&a.json, "json", false, "print the manifest (JSON)")
		return a
	},
}

type packageAction struct {
	output string
	json   bool
	// run has what loads the model and gives it inputs.
	run runAction
}

func (a *packageAction) Check(_ *Session, args []string) error {
	if err := expect(&packageCommand, args, "MODEL"); err != nil {
		return err
	}
	if a.output == "" {
		return errors.New("where to write the package is missing: -o FOLDER")
	}
	if err := checkReadable("model", args[0]); err != nil {
		return err
	}
	if a.run.inputs != "" {
		if err := checkReadable("inputs", a.run.inputs); err != nil {
			return err
		}
	}
	return deployment.CheckFolder(a.output)
}

func (a *packageAction) Run(s *Session, args []string) error {
	folder, err := s.temporaryFolder()
	if err != nil {
		return err
	}
	files, err := runmodel.Open(args[0], folder)
	if err != nil {
		return err
	}
	if _, err := a.run.loadRuntime(s); err != nil {
		return err
	}
	model, err := runmodel.Load(files)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	inputs, err := a.run.readInputs(model.Inputs, &runReport{})
	if err != nil {
		return err
	}
	if err := model.SetInputs(inputs); err != nil {
		return err
	}
	if _, err := model.Time(s.Context, 1, 0); err != nil {
		return err
	}
	library, err := filepath.EvalSymlinks(files.Library)
	if err != nil {
		return err
	}
	loaded, err := deployment.Loaded(library)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	manifest, err := deployment.Write(a.output, &deployment.Content{Version: Version, Model: files, Program: program,
		Libraries: loaded, Plugins: model.PluginNames(), Inputs: model.Inputs, Outputs: model.Outputs,
		VirtualMachine: model.OnMachine()})
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(manifest)
	}
	var size int64
	for _, file := range manifest.Files {
		size += file.Bytes
	}
	_, err = fmt.Fprintf(s.Stdout, "%s: %s in %d files, for %s with glibc %s or later; run it with\n  %s run %s\n", a.output,
		sizeText(size), len(manifest.Files), manifest.Machine, manifest.GLIBC,
		filepath.Join(a.output, "collage"), a.output)
	return err
}
