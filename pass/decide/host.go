// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// buildFunction is the packed function of the Python host (python/collage/host.py) that builds a module.
const buildFunction = "collage.host.build"

// HostBuild builds in the Python host, which is this process (Options.Build).
func HostBuild(module *bridge.Object, b Build) error {
	_, err := CallHost(buildFunction, map[string]any{
		"target": b.Target, "opt_level": b.OptLevel, "disabled_passes": b.DisabledPasses, "tuning_log": b.TuningLog,
		"out": b.Out, "plugins": b.Plugins, "threads": b.Threads,
		"on_machine": b.OnMachine, "tried": b.Tried,
	}, module)
	return err
}

// hostBuild is HostBuild where the host is in this process, else nil.
func hostBuild() func(*bridge.Object, Build) error {
	f, there := bridge.LookupGlobalFunction(buildFunction)
	if !there {
		return nil
	}
	f.Release()
	return HostBuild
}

// CallHost calls a packed function of the Python host. The last argument is the options, as JSON. Errors that it raised
// with a text for the user are that text, a full disk is a *FullDisk.
func CallHost(name string, options map[string]any, before ...any) (bridge.Value, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return bridge.Value{}, err
	}
	value, err := bridge.Global(name, append(before, string(text))...)
	if err != nil {
		return bridge.Value{}, plainError(err)
	}
	return value, nil
}

// plainClasses are Python's exceptions whose text alone is what a user wants to read.
var plainClasses = map[string]bool{
	"FileNotFoundError": true, "PermissionError": true, "IsADirectoryError": true, "NotADirectoryError": true,
	"OSError": true, "ValueError": true, "ImportError": true, "ExportError": true, "LibraryError": true,
}

// plainError takes the class off an exception that the Python host raised with a text for the user, and makes a
// full disk one that Go knows.
func plainError(err error) error {
	var fromHost *bridge.Error
	if !errors.As(err, &fromHost) {
		return err
	}
	if errors.Is(err, bridge.ErrInterrupted) {
		return err
	}
	text := fromHost.Message
	// str() of an OSError begins with its number: "[Errno 28] ...".
	if strings.HasPrefix(text, "[Errno ") {
		if _, rest, found := strings.Cut(text, "] "); found {
			text = rest
		}
	}
	for _, sign := range []string{"No space left", "no space left", "Disk quota exceeded"} {
		if strings.Contains(text, sign) {
			return &FullDisk{Detail: text}
		}
	}
	if fromHost.Python() && plainClasses[fromHost.Class] {
		return errors.New(text)
	}
	return err
}
