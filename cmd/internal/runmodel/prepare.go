// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
)

// pluginPrefix begins the file names of the runtime plug-ins.
const pluginPrefix = "libcollage_"

// PrepareFunction takes the path of a model's library and makes this process ready to load it (Prepare): an error says
// what it needs and is not here.
const PrepareFunction = "collage.prepare_model"

// Prepare makes this process ready to load a model's library, or says why that does not fit here; nothing of the model
// itself is loaded. It loads the plug-ins of this installation that the model needs: the loader then finds them by
// their names. It gives the path of each of them, and the bare name of those that are left to the loader.
func Prepare(library string) (plugins []string, err error) {
	demands, err := Needed(library)
	if err != nil {
		return nil, err
	}
	for _, name := range demands.Libraries {
		if !strings.HasPrefix(name, pluginPrefix) {
			continue
		}
		path, err := byoc.PluginPath(name)
		if err != nil {
			plugins = append(plugins, name)
			continue
		}
		if _, err := byoc.OpenPlugin(path); err != nil {
			return nil, err
		}
		plugins = append(plugins, path)
	}
	return plugins, demands.check()
}

// check asks the runtime whether what the model's note demands is here. Where there is no runtime the model's own
// plug-ins ask when it is loaded.
func (d *Demands) check() error {
	if d.Note == "" {
		return nil
	}
	path, err := byoc.PluginPath("runtime")
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if _, err := byoc.OpenPlugin(path); err != nil {
		return err
	}
	if _, err := bridge.Global("collage.runtime.CheckNeeds", d.Note); err != nil {
		return errors.New(lastLine(err))
	}
	return nil
}

// lastLine is what an error of TVM's says, without where it was thrown.
func lastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	if at := strings.Index(text, "this model "); at >= 0 {
		text, _, _ = strings.Cut(text[at:], "\n")
	}
	return text
}

// SignatureFunction is what a library for TVM's virtual machine says of its inputs and outputs, as JSON, for Python: it
// takes the library's path.
const SignatureFunction = "collage.model_signature"

// Register registers PrepareFunction and SignatureFunction. TVM must be loaded.
func Register() error {
	err := bridge.RegisterFunction(SignatureFunction, true, func(args []bridge.Value) (any, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("TypeError: %s takes the path of a model's library", SignatureFunction)
		}
		library, err := args[0].Str()
		if err != nil {
			return nil, err
		}
		demands, err := Needed(library)
		if err != nil {
			return nil, err
		}
		return demands.Signature, nil
	})
	if err != nil {
		return err
	}
	return bridge.RegisterFunction(PrepareFunction, true, func(args []bridge.Value) (any, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("TypeError: %s takes the path of a model's library", PrepareFunction)
		}
		library, err := args[0].Str()
		if err != nil {
			return nil, err
		}
		return Prepare(library)
	})
}
