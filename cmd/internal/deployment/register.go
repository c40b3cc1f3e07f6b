// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"os"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

// FilesFunction finds out what a model consists of, for Python: it takes the path of a .so, a .tar or a package, and a
// folder into which a .tar is unpacked. It gives the array of the paths of its library, its graph and its weights; the
// last two are "" for a library that has them inside.
const FilesFunction = "collage.model_files"

// Register registers FilesFunction. TVM must be loaded.
func Register() error {
	return bridge.RegisterFunction(FilesFunction, true, func(args []bridge.Value) (any, error) {
		if len(args) != 2 {
			return nil, fmt.Errorf("TypeError: %s takes the path of a model and a folder", FilesFunction)
		}
		var texts [2]string
		for i := range texts {
			var err error
			if texts[i], err = args[i].Str(); err != nil {
				return nil, err
			}
		}
		files, err := filesOf(texts[0], texts[1])
		if err != nil {
			return nil, fmt.Errorf("ValueError: %w", err)
		}
		return []any{files.Library, files.Graph, files.Params}, nil
	})
}

func filesOf(path, folder string) (*runmodel.Files, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return Open(path)
	}
	return runmodel.Open(path, folder)
}
