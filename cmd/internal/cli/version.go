// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/python/collage"
)

// Version is the version of Collage, which the Python package says.
var Version = collage.Version()

var versionCommand = Command{
	Name:     "version",
	Short:    "print the version of collage",
	Long:     "Prints the version of collage. `collage doctor` has those of TVM, the libraries and the plug-ins.",
	Examples: []string{"version", "version --json"},
	New: func(flags *pflag.FlagSet) Action {
		a := &versionAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type versionAction struct{ json bool }

// versionInfo is what --json prints.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// Revision is the commit that was built, where the build recorded it.
	Revision string `json:"revision,omitempty"`
}

func currentVersion() versionInfo {
	v := versionInfo{Version: Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Revision = setting.Value
			}
		}
	}
	return v
}

func (a *versionAction) Check(_ *Session, args []string) error { return expect(&versionCommand, args) }

func (a *versionAction) Run(s *Session, _ []string) error {
	v := currentVersion()
	if a.json {
		return s.printJSON(v)
	}
	revision := ""
	if v.Revision != "" {
		revision = ", revision " + v.Revision
	}
	_, err := fmt.Fprintf(s.Stdout, "collage %s (%s, %s/%s%s)\n", v.Version, v.Go, v.OS, v.Arch, revision)
	return err
}
