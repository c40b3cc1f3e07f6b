// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/cmd/internal/install"
	"github.com/collage-tvm/collage/relay"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestMain leaves commands no Python that they would be handed over to: it would take the place of the tests, and those
// that have not run would count as passed.
func TestMain(m *testing.M) {
	if err := os.Setenv(install.PythonEnv, "no-python-in-these-tests"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// runLine runs a command line in a session of its own, as the standalone program does.
func runLine(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	s := newSession(&out, &err)
	code = s.main(args)
	return code, out.String(), err.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	compareGolden(t, filepath.Join("testdata", name), got)
}

// compareGolden is golden for a file anywhere.
func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "%s (go test -rewrite writes it anew)", filepath.Base(path))
}

func TestHelp(t *testing.T) {
	_, overview, _ := runLine(t)
	golden(t, "help.txt", overview)
	for _, line := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		code, stdout, stderr := runLine(t, line...)
		assert.Zero(t, code)
		assert.Equal(t, overview, stdout)
		assert.Empty(t, stderr)
	}
	for _, c := range allCommands() {
		words := strings.Fields(c.Name)
		code, help, stderr := runLine(t, append([]string{"help"}, words...)...)
		assert.Zero(t, code)
		assert.Empty(t, stderr)
		golden(t, "help_"+strings.Join(words, "_")+".txt", help)
		_, same, _ := runLine(t, append(words, "--help")...)
		assert.Equal(t, help, same)
		for number, line := range strings.Split(help, "\n") {
			assert.LessOrEqual(t, len(line), textWidth, "line %d of the help of %s", number+1, c.Name)
		}
	}
}

// allCommands are all commands and their parts.
func allCommands() []*Command {
	var all []*Command
	for _, c := range commands() {
		all = append(append(all, c), c.Parts...)
	}
	return all
}

func TestVersion(t *testing.T) {
	code, stdout, _ := runLine(t, "version")
	assert.Zero(t, code)
	assert.Regexp(t, `^collage \d+\.\d+\.\d+ \(go`, stdout)
	_, same, _ := runLine(t, "--version")
	assert.Equal(t, stdout, same)
	_, asJSON, _ := runLine(t, "version", "--json")
	assert.Contains(t, asJSON, `"version": "`+Version+`"`)
}

// Every failure is one message on the standard error, exit code 2, and nothing on the standard output.
func TestFailures(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	t.Setenv("COLLAGE_PLUGIN_DIR", folder)
	t.Setenv(install.PythonEnv, filepath.Join(folder, "no-python"))
	require.NoError(t, os.WriteFile("model.onnx", []byte("x"), 0o600))
	require.NoError(t, os.Mkdir("folder", 0o755))
	t.Setenv("XDG_CACHE_HOME", folder)

	tests := map[string]string{
		"complie":                              `unknown command "complie": did you mean "compile"? (see collage help)`,
		"zzz":                                  `unknown command "zzz" (commands: compile, plan, tune, run, package, serve, bench, explain, diff, db, doctor, backends, tvmc, completion, version, help)`,
		"--json doctor":                        `the command comes first: collage COMMAND --json (see collage help)`,
		"help zzz":                             `unknown command "zzz" (commands: compile, plan, tune, run, package, serve, bench, explain, diff, db, doctor, backends, tvmc, completion, version, help)`,
		"help run compile":                     `help takes one command, not "compile" too`,
		"version now":                          `version does not take "now": collage version`,
		"backends --operators --json":          `--operators does not go with --json: `,
		"backends --operators -v":              `--operators does not go with --verbose: `,
		"run":                                  `run needs MODEL: collage run MODEL [--inputs FILE] [--outputs FILE]`,
		"run a b":                              `run does not take "b": collage run MODEL [--inputs FILE] [--outputs FILE]`,
		"run --repat 3 a":                      `run has no flag --repat: did you mean --repeat? (see collage help run)`,
		"run --zzzzzzz a":                      `run has no flag --zzzzzzz (see collage help run)`,
		"run -z a":                             `run has no flag -z (see collage help run)`,
		"run a --repeat":                       `the flag --repeat needs a value (see collage help run)`,
		"run a --repeat many":                  `--repeat many: not a whole number (see collage help run)`,
		"run a --seed -1":                      `--seed -1: not a whole number from 0 up (see collage help run)`,
		"run a --repeat 0":                     `--repeat 0: at least one call must be made`,
		"run a --warmup -1":                    `--warmup -1: cannot be negative`,
		"run a --threads -1":                   `--threads -1: not a number of threads (0 for all that the machine has)`,
		"run a":                                `model: no such file a`,
		"run folder":                           `model: folder is a folder without a manifest.json, so collage package did not write it`,
		"run model.onnx":                       `model.onnx is neither a .tar nor a .so that collage compile or tvmc wrote`,
		"run model.onnx --inputs none.npz":     `inputs: no such file none.npz`,
		"run model.onnx --outputs no/y.npz":    `cannot write no/y.npz: the folder no does not exist`,
		"run model.onnx --outputs folder":      `folder is a folder; give the name of a file`,
		"compile":                              `compile needs MODEL: collage compile MODEL -o FILE [--backends tvm,dnnl,native]`,
		"db lss":                               `unknown command "db lss": did you mean "db ls"? (see collage help)`,
		"db zzz":                               `unknown command "db zzz"`,
		"db ls --older-than soon":              `--older-than soon: give it as 12h, 30d or 8w`,
		"db ls --db none":                      `--db: no such file none`,
		"db ls":                                `there is no cost store yet at `,
		"db ls --db model.onnx":                `cost: model.onnx is not a cost store`,
		"db merge":                             `db merge needs the stores to merge`,
		"db merge model.onnx":                  `where to write the merged store is missing: -o FILE`,
		"db merge none -o c":                   `store: no such file none`,
		"db export --format xml":               `--format xml is not known`,
		"help db ls more":                      `help takes one command, not "more" too`,
		"explain":                              `explain needs PLAN: collage explain PLAN [NODE]`,
		"explain none.json":                    `plan: no such file none.json`,
		"explain model.onnx":                   `model.onnx: not a plan: `,
		"explain model.onnx %x":                `the selector %x is no node: give its number, as in %12`,
		"diff model.onnx":                      `diff needs a second PLAN: collage diff PLAN PLAN`,
		"tune model.onnx":                      `where to write what is found is missing: -o LOG`,
		"tune model.onnx -o t.json --trials 0": `--trials 0: at least one program must be tried`,
		"tune model.onnx -o t.json --tuner x":  `--tuner x is not known (tuners: auto, xgboost, genetic, random, metaschedule)`,
		"tune model.onnx -o folder":            `-o folder is a folder; AutoTVM's log is a file (a folder goes with --tuner metaschedule)`,
		"tune model.onnx -o model.onnx":        `MODEL and -o are the same file model.onnx`,
		"compile model.onnx -o a.so --tuning-log none":       `--tuning-log: no such file or folder none`,
		"compile model.onnx -o a.so --tuning-log model.onnx": `--tuning-log: model.onnx: its first line is not one of AutoTVM's records`,
		"compile model.onnx -o a.so --tuning-log folder":     `--tuning-log: folder: the folder has no database_workload.json, so it is no MetaSchedule database`,
		"plan":                                            `plan needs MODEL: collage plan MODEL [--plan-out FILE]`,
		"plan model.onnx --plan-out model.onnx":           `MODEL and --plan-out are the same file model.onnx`,
		"plan model.onnx --rounds 3":                      `plan has no flag --rounds`,
		"plan model.onnx --pin nn.conv2d":                 `--pin: "nn.conv2d" is not SELECTOR=BACKEND`,
		"plan model.onnx --forbid nn.conv2d=cudnn":        `--forbid nn.conv2d=cudnn: cudnn is not among the backends that may be used (tvm, dnnl, native)`,
		"compile model.onnx -o a.so --plan none":          `--plan: no such file none`,
		"compile model.onnx -o a.so --plan model.onnx":    `MODEL and --plan are the same file model.onnx`,
		"compile model.onnx -o a.so --plan p --threads 2": `--threads does not go with --plan: the plan says it`,
		"compile model.onnx":                              `where to write the executable is missing: -o FILE.tar or -o FILE.so`,
		"compile model.onnx -o":                           `the flag --output needs a value (see collage help compile)`,
		"compile none.onnx -o a.tar":                      `model: no such file none.onnx`,
		"compile resnet -o a.tar":                         `model: no such file resnet (networks that are built in are named workload:NAME)`,
		"compile workload: -o a.tar":                      `workload: needs a name, as in workload:resnext50_32x4d`,
		"compile folder -o a.tar":                         `model: folder is a folder, not a file`,
		"compile model.onnx -o a.zip":                     `-o a.zip: the name must end in .tar (for collage run and tvmc run) or .so (for TVM's load_module)`,
		"compile model.onnx -o no/a.tar":                  `cannot write no/a.tar: the folder no does not exist`,
		"compile model.onnx -o a.so --plan-out no/p":      `cannot write no/p: the folder no does not exist`,
		"compile model.onnx -o a.so --plan-out a.so":      `-o and --plan-out are the same file a.so`,
		"compile model.onnx -o a.so --db folder":          `--db folder is a folder; give the name of a file`,
		"compile model.onnx -o a.so --db model.onnx":      `MODEL and --db are the same file model.onnx`,
		"compile model.onnx -o a.so --format onyx":        `--format onyx is not known: did you mean onnx?`,
		"compile model.onnx -o a.so --params none":        `--params: no such file none`,
		"compile workload:x -o a.so --params none":        `workload:x brings its own parameters; --params goes with a Relay program`,
		"compile model.onnx -o a.so --opt-level 5":        `--opt-level 5: TVM has levels 0 to 4`,
		"compile model.onnx -o a.so --repeat 0":           `--repeat 0: at least one sample must be taken`,
		"compile model.onnx -o a.so --rounds 0":           `--rounds 0: at least one round must be run`,
		"compile model.onnx -o a.so -q -v":                `--quiet and --verbose contradict each other`,
		"compile model.onnx -o a.so --backends ,":         `--backends is empty: name at least one (see collage backends)`,
		"compile model.onnx -o a.so --backends tvm,tvm":   `--backends names tvm twice`,
		"compile model.onnx -o a.so --backends tvm,dnl":   `--backends: unknown backend "dnl": did you mean "dnnl"? (known: `,
		"compile model.onnx -o a.so --backends tvm,dnnl":  `--backends: dnnl cannot be used: runtime plug-in libcollage_dnnl.so not found`,
		"compile model.onnx -o a.so --backends tvm": `compile needs Python with TVM: COLLAGE_PYTHON is ` +
			folder + `/no-python, which cannot be run`,
		"compile model.onnx -o a.so --input-shape x": `--input-shape x: give it as NAME:1,3,224,224`,
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := runLine(t, strings.Fields(line)...)
			assert.Equal(t, 2, code)
			assert.Empty(t, stdout)
			assert.True(t, strings.HasPrefix(stderr, "collage: error: "+want), "%q does not begin with %q", stderr,
				want)
		})
	}
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Len(t, entries, 2, "something was left behind")
}

func TestParseShapes(t *testing.T) {
	got, err := inputShape.parse([]string{"data:1,3,224,224", "scope/x:0:[1, 8]", "scalar:", "list:0"})
	require.NoError(t, err)
	assert.Equal(t, map[string][]int64{
		"data": {1, 3, 224, 224}, "scope/x:0": {1, 8}, "scalar": {}, "list": {0},
	}, got)
	for text, want := range map[string]string{
		"data": "give it as NAME", ":1": "give it as NAME", "x:1,a": `"a" is not a size`,
		"x:1,,2": `"" is not a size`, "x:-1": `"-1" is not a size`,
	} {
		_, err := inputShape.parse([]string{text})
		assert.ErrorContains(t, err, want, text)
	}
	_, err = inputShape.parse([]string{"x:1", "x:2"})
	assert.ErrorContains(t, err, "twice")
}

func TestParseValues(t *testing.T) {
	got, err := inputValue.parse([]string{"sizes:1,3,64.5", "a:b:-2e3", "none:"})
	require.NoError(t, err)
	assert.Equal(t, map[string][]float64{"sizes": {1, 3, 64.5}, "a:b": {-2000}, "none": {}}, got)
	for text, want := range map[string]string{
		"data": "--input-value data: give it as NAME:2,2", "x:1,a": `"a" is not a number`,
		"x:1,,2": `"" is not a number`, "x:inf": `"inf" is not a number`, "x:NaN": `"NaN" is not a number`,
	} {
		_, err := inputValue.parse([]string{text})
		assert.ErrorContains(t, err, want, text)
	}
	_, err = inputValue.parse([]string{"x:1", "x:2"})
	assert.ErrorContains(t, err, "--input-value gives the value of x twice")
}

// Without Python doctor and backends still say what there is.
func TestDoctorAndBackendsWithoutPython(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("COLLAGE_PLUGIN_DIR", folder)
	t.Setenv("XDG_CACHE_HOME", folder)
	t.Setenv(install.PythonEnv, filepath.Join(folder, "no-python"))
	code, stdout, stderr := runLine(t, "doctor")
	assert.Equal(t, 2, code)
	assert.Contains(t, stdout, "no-python, which cannot be run")
	assert.Contains(t, stdout, "remedy: pip install onednn-cpu-tbb")
	assert.Equal(t, "collage: error: models cannot be compiled here; what is missing is listed above\n", stderr)

	code, stdout, _ = runLine(t, "doctor", "--json")
	assert.Equal(t, 2, code)
	assert.Contains(t, stdout, `"ready": false`)

	code, stdout, _ = runLine(t, "backends")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "tvm: ")
	assert.Contains(t, stdout, "dnnl: ")
	code, stdout, _ = runLine(t, "backends", "--verbose")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "dnnl.conv2d_bias_relu\n")
	code, stdout, _ = runLine(t, "backends", "--json")
	assert.Zero(t, code)
	assert.Contains(t, stdout, `"composite": "dnnl.conv2d_bias_relu"`)
}

// Kernels with a name are listed, and those that --exact does without are marked.
func TestBackendsListTheirKernels(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	known := byoc.All()
	t.Cleanup(byoc.Reset())
	for _, b := range known {
		require.NoError(t, byoc.Register(b))
	}
	require.NoError(t, byoc.Register(byoc.Definition{Name: "kernels", Description: "kernels of the tests",
		Emit: byoc.ExistingEmitter{},
		Patterns: []byoc.Pattern{
			{Composite: "kernels.strassen_dense", Shape: relay.Op("nn.dense"), Kernel: "strassen", Reassociates: true},
			{Composite: "kernels.strassen_matmul", Shape: relay.Op("nn.matmul"), Kernel: "strassen",
				Reassociates: true},
			{Composite: "kernels.narrow_dense", Shape: relay.Op("nn.dense"), Kernel: "narrow"},
			{Composite: "kernels.relu", Shape: relay.Op("nn.relu")},
		}}.Backend()))
	code, stdout, stderr := runLine(t, "backends")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "  kernels   2:\n    narrow, strassen (not with --exact)\n")
	code, stdout, stderr = runLine(t, "backends", "--verbose")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "    kernels.strassen_dense (kernel strassen, not with --exact)\n    "+
		"kernels.strassen_matmul (")
	assert.Contains(t, stdout, "    kernels.narrow_dense (kernel narrow)\n    kernels.relu\n")
	code, stdout, stderr = runLine(t, "backends", "--json")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, `"kernel": "strassen"`)
	assert.Contains(t, stdout, `"reassociates": true`)
}

// A panic is a message and exit code 2; temporary folders are removed.
func TestPanicIsTold(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, err bytes.Buffer
	s := newSession(&out, &err)
	folder, e := s.temporaryFolder()
	require.NoError(t, e)
	code := func() (code int) {
		defer s.close()
		defer s.recoverPanic(&code)
		panic("the roof is on fire")
	}()
	assert.Equal(t, 2, code)
	assert.Contains(t, err.String(), "collage: error: internal error: the roof is on fire\n")
	assert.NotContains(t, err.String(), "goroutine")
	assert.NoDirExists(t, folder)
}

// The folder that is handed over belongs to the process that made it; no other removes it.
func TestTemporaryFolderIsHandedOver(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	folder, environment, err := handOverTemporary()
	require.NoError(t, err)
	assert.Contains(t, environment, "TMPDIR="+folder)

	t.Setenv(temporaryEnv, folder)
	s := newSession(nil, nil)
	s.adoptTemporary()
	s.close()
	assert.NoDirExists(t, folder)

	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, ownerFile), []byte("1"), 0o600))
	t.Setenv(temporaryEnv, foreign)
	s = newSession(nil, nil)
	s.adoptTemporary()
	s.close()
	assert.DirExists(t, foreign)
}

// Each command shows how it is used, and each exit code that a command may end with is told.
func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	for _, c := range describe(commands()) {
		assert.NotEmpty(t, c.Examples, c.Name)
		assert.True(t, slices.ContainsFunc(c.Examples, func(e string) bool { return strings.HasPrefix(e, c.Name) }), c.Name)
	}
	_, stdout, _ := runLine(t, "help")
	for _, code := range []int{exitOK, exitFailure, exitStrict, exitInterrupted, exitBrokenPipe} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^  %d +\S`, code), stdout)
	}
}
