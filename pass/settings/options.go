// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/pass/measure"
)

// Option is one thing that users may say about a placement. The fields of Config hold what they said; here stands once
// what there is to say: PassContext's options, the functions of Python, the flags of the command line and the documents
// have their names, types, defaults and meanings from here.
type Option struct {
	// Name is the option as Python spells it, the JSON tag of its field in Config ("search_time"). PassContext has it
	// as "collage." and this name.
	Name string
	// Flag is the flag of the command line, without dashes; "" where there is none.
	Flag string
	// Default is what holds where nobody says anything; nil where that is not one value, and the meaning says what.
	Default any
	// Meaning says what the option does, in one sentence or two. `NAME` in it is what the flag's value is called, and
	// {name} another option.
	Meaning string
	// Part is what the option is about.
	Part Part
}

// Part says what an option is about: collage plan, which runs no finalists, has those of Placing and "search_time".
type Part string

const (
	// Placing is what may be placed where, and how it is measured.
	Placing Part = "placing"
	// Searching is how far the search goes.
	Searching Part = "searching"
	// Rounding is in which types parts may be computed.
	Rounding Part = "precision"
)

// Kind is the type of an option.
type Kind string

// The kinds: those of fields of Config. PassContext has no numbers with a point: there Number is a text.
const (
	Text    Kind = "text"
	Texts   Kind = "texts"
	Integer Kind = "integer"
	Number  Kind = "number"
	Truth   Kind = "truth"
)

var options = []Option{
	{"backends", "backends", DefaultBackends, "the backends that may be used, as `NAMES` with commas", Placing},
	{"devices", "device", DefaultDevices, "the kinds of device that parts may run on, as `NAMES` with commas: cpu, which " +
		"always is one, opencl and cuda; all backends of a device that can be used here are offered beside {backends}", Placing},
	{"pin", "pin", nil, "put operators on a backend, as `WHAT=BACKEND`: nn.conv2d=dnnl, %12=tvm, or what the front end " +
		"calls it; BACKEND.KERNEL (nn.conv2d=native.winograd) names one of its kernels; may be repeated", Placing},
	{"forbid", "forbid", nil, "keep operators off a backend or one of its kernels, as `WHAT=BACKEND` or " +
		"BACKEND.KERNEL; may be repeated", Placing},
	{"exact", "exact", false, "do without kernels that associate sums otherwise than a direct sum does, as Winograd's do " +
		"(collage backends marks them): their rounding errors are larger", Placing},
	{"only", "", nil, "give a `BACKEND` all that it can take, without measuring, the rest to TVM; several (native,dnnl): " +
		"what both can take goes to the first. It leaves {backends} out of account and the search out", Placing},
	{"target", "target", nil, "what to compile for: `TARGET` is x86-64-v2, x86-64-v3 (AVX2), x86-64-v4 (AVX-512), " +
		"native (this machine's processor, the default) or a target of TVM's", Placing},
	{"threads", "threads", 0, "the executable uses `N` threads; 0 for all that the machine has", Placing},
	{"opt_level", "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4", Placing},
	{"disabled_passes", "", defaultDisabledPasses, "TVM's passes that every build leaves out, as `NAMES`", Placing},
	{"python", "", nil, "the `FILE` of the Python that runs the workers; without it, the one that is running", Placing},
	{"tuning_log", "tuning-log", nil, "compile TVM's part with what its tuners found out: AutoTVM's `FILE`, or the " +
		"folder of a MetaSchedule database (see collage tune)", Placing},
	{"store", "db", nil, "the cost store, `FILE` (.jsonl); without it, the user's", Placing},
	{"samples", "repeat", measure.DefaultSamples, "take `N` samples of each candidate", Placing},
	{"exhaustive", "exhaustive", false, "measure every candidate, those too that a lower bound leaves no chance", Placing},
	{"skip_unusable", "skip-unusable", false, "leave backends out that cannot be used here; the plan says why", Placing},
	{"retry_failures", "retry-failures", false, "measure candidates again that failed before", Placing},
	{"strict", "strict", false, "fail where there would only be a warning: a backend that is left out, a network that could " +
		"not be built or not in time, another machine than the plan's, an import that nothing was held against, errors " +
		"taken on random inputs, an option without effect. The command's exit code is 3 then", Placing},
	{"trace", "trace", nil, "write what was done when, and by which process, to `FILE` (JSON), which Perfetto opens", Placing},

	{"precision", "precision", nil, "the narrowest `TYPE` that parts may be computed in, where that is quicker and the " +
		"error is not too large: f32, bf16, int8, or auto for all that the backends have here (f32; for a network that " +
		"comes quantised bytes, too). f32 is held to plain TVM's answer within a tolerance: kernels may add in another " +
		"order", Rounding},
	{"max_error", "max-error", 0.0, fmt.Sprintf("how far the outputs may be off plain TVM's in float32, as a share `E` of "+
		"them; 0 for %g where {precision} is not f32 and for %g where the network comes quantised, else for the tolerance "+
		"that each part has", DefaultMaxError, QuantisedMaxError), Rounding},
	{"error_measure", "error-measure", nil, "the `MEASURE` of {max_error}: l2 (the length of the difference, the " +
		"default), max (its greatest element), cosine, top1 (rows whose greatest element is another) or FILE.py:FUNCTION " +
		"(def FUNCTION(ours, right))", Rounding},
	{"calibration", "calibration", nil, "take errors on real inputs, of `FILE`.npz or of a folder of such files with an " +
		"array for each input, instead of random ones", Rounding},
	{"calibration_method", "calibration-method", nil, "make scales of bytes by `METHOD` of what is seen on inputs: mse, " +
		"min-max, percentile (percentile:99.9 for another share than 99.99), entropy, or auto for the one by which the " +
		"outputs are off the least (auto)", Rounding},
	{"bias_correction", "bias-correction", nil, "`WHEN` what weights in bytes are off by in the mean is taken off biases: " +
		"on, off, or auto for where the outputs are off by less then (auto)", Rounding},

	{"level", "level", string(GraphLevel), "search up to `LEVEL`: graph (placements are built, measured and placed again) " +
		"or operator (placed once, by what parts take within every backend alone)", Searching},
	{"search_time", "search-time", DefaultSearchTime.Seconds(), "the whole takes `TIME` (90s, 5m), from the command's start to its " +
		"end, or less where nothing more is to be gained; plain TVM and one backend are built even where they take " +
		"longer, which is said", Searching},
	{"trials", "trials", 0, "the graph level's search measures at most `N` networks; 0 for no such limit", Searching},
	{"rounds", "rounds", DefaultRounds, "run the finished networks `N` times each, in turn", Searching},
}

// DefaultSearchTime is how long a search takes at most where nobody says more.
const DefaultSearchTime = 2 * time.Minute

// DefaultRounds is how often the finalists are run where nobody says so.
const DefaultRounds = 20

// Options are all that there are, in the order in which they are told.
func Options() []Option { return slices.Clone(options) }

// FindOption is the option of a name; it panics where there is none, which is a defect of Collage.
func FindOption(name string) Option {
	i := slices.IndexFunc(options, func(o Option) bool { return o.Name == name })
	if i < 0 {
		panic("settings: there is no option " + name)
	}
	return options[i]
}

// Field is the option's field in a Config; it can be set.
func (o *Option) Field(config *Config) reflect.Value {
	value := reflect.ValueOf(config).Elem()
	for _, field := range reflect.VisibleFields(value.Type()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == o.Name {
			return value.FieldByIndex(field.Index)
		}
	}
	panic("settings: Config has no field for the option " + o.Name)
}

// Kind is the option's type.
func (o *Option) Kind() Kind {
	kind := o.Field(&Config{}).Type()
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	switch kind.Kind() {
	case reflect.Slice:
		return Texts
	case reflect.Bool:
		return Truth
	case reflect.Float64:
		return Number
	case reflect.Int:
		return Integer
	}
	return Text
}

var reference = regexp.MustCompile(`\{(\w+)\}`)

// Help is the meaning as the command line says it: other options are flags.
func (o *Option) Help() string {
	return o.spelled(func(other string) string { return "--" + FindOption(other).Flag })
}

// Described is the meaning for documents and for Python: other options have their names, what a flag's value is called
// is not marked.
func (o *Option) Described() string {
	return strings.ReplaceAll(o.spelled(func(other string) string { return other }), "`", "")
}

func (o *Option) spelled(spell func(name string) string) string {
	return reference.ReplaceAllStringFunc(o.Meaning, func(found string) string { return spell(found[1 : len(found)-1]) })
}
