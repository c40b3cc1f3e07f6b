// SPDX-License-Identifier: Apache-2.0

package decide

import "github.com/collage-tvm/collage/byoc"

// pluginPaths are the runtime plug-ins that an executable with regions of these compilers is linked with. A
// compiler that has no plug-in of ours brings its runtime by itself.
func pluginPaths(compilers []string) []string {
	var paths []string
	if path, err := byoc.PluginPath("runtime"); err == nil {
		paths = append(paths, path)
	}
	for _, compiler := range compilers {
		// What is missing here was missing when the backend was probed.
		if files, err := byoc.LibrariesFor(compiler); err == nil {
			paths = append(paths, files...)
		}
	}
	return paths
}

func backendCompiler(name string) string {
	b, err := byoc.Lookup(name)
	if err != nil {
		return ""
	}
	return b.Compiler()
}
