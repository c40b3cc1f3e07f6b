// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Library says where the shared library of an optional backend may lie. Nothing of it is linked: the backend's plug-in
// opens it when a region first runs (byoc/runtime/optional_library.h looks in the same places).
type Library struct {
	// Env is the environment variable that names the file; it goes before every other place.
	Env string
	// Packages are files below site-packages ("openvino/libs/libopenvino_c.so"), Prefix files below the prefix of the
	// Python ("lib/libmkl_rt.so.2"), each a path or a glob of filepath.Match.
	Packages, Prefix []string
	// Names are what the system's folders are searched for ("libmkl_rt.so.2").
	Names []string
}

// Find gives the library's file as an absolute path, without loading it. It looks in the file that Env names, in the
// site-packages and the prefix of the Python that COLLAGE_PYTHON names, in those that the plug-ins are installed in, in
// LD_LIBRARY_PATH and in the system's folders. The error says where was looked.
func (l Library) Find() (string, error) {
	if named := os.Getenv(l.Env); named != "" {
		if isFile(named) {
			return filepath.Abs(named)
		}
		return "", fmt.Errorf("%s is %s, which is no file", l.Env, named)
	}
	sites, prefixes := pythonFolders()
	var searched []string
	for _, group := range []struct{ folders, files []string }{{sites, l.Packages}, {prefixes, l.Prefix},
		{loaderFolders(), l.Names}} {
		for _, folder := range group.folders {
			for _, file := range group.files {
				matches, _ := filepath.Glob(filepath.Join(folder, file))
				for _, m := range matches {
					if isFile(m) {
						return filepath.Abs(m)
					}
				}
			}
		}
		if len(group.files) > 0 {
			searched = append(searched, group.folders...)
		}
	}
	name := ""
	for _, names := range [][]string{l.Names, l.Packages, l.Prefix} {
		if name == "" && len(names) > 0 {
			name = filepath.Base(names[0])
		}
	}
	const shown = 4
	if len(searched) > shown {
		searched = append(searched[:shown:shown], "the system's folders")
	}
	return "", fmt.Errorf("%s not found (looked in %s); another place is named in %s", name,
		strings.Join(searched, ", "), l.Env)
}

// installedFolders are the site-packages and the prefix that the plug-ins are installed in; none where they are not.
func installedFolders() []string {
	var folders []string
	// Installed plug-ins lie in PREFIX/lib/pythonX.Y/site-packages/collage/lib.
	for _, dir := range pluginDirs() {
		if absolute, err := filepath.Abs(dir); err == nil && filepath.Base(filepath.Dir(absolute)) == "collage" {
			folders = append(folders, filepath.Join(absolute, "..", ".."),
				filepath.Join(absolute, "..", "..", "..", "..", ".."))
		}
	}
	return folders
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// pythonFolders are the site-packages and prefixes in which optional libraries are looked for.
func pythonFolders() (sites, prefixes []string) {
	seen := map[string]bool{}
	add := func(to *[]string, folder string) {
		if folder = filepath.Clean(folder); !seen[folder] {
			if info, err := os.Stat(folder); err == nil && info.IsDir() {
				seen[folder] = true
				*to = append(*to, folder)
			}
		}
	}
	if python := os.Getenv("COLLAGE_PYTHON"); python != "" {
		prefix := filepath.Dir(filepath.Dir(python))
		add(&prefixes, prefix)
		for _, form := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages",
			"lib/python3/dist-packages",
			"local/lib/python3*/dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(prefix, form))
			for _, folder := range found {
				add(&sites, folder)
			}
		}
	}
	installed := installedFolders()
	for i := 0; i+1 < len(installed); i += 2 {
		add(&sites, installed[i])
		add(&prefixes, installed[i+1])
	}
	if home, err := os.UserHomeDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(home, ".local/lib/python3*/site-packages"))
		for _, folder := range found {
			add(&sites, folder)
		}
	}
	return sites, prefixes
}

// loaderFolders are where the dynamic loader looks: LD_LIBRARY_PATH and the system's folders.
func loaderFolders() []string {
	var folders []string
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if dir != "" {
			folders = append(folders, dir)
		}
	}
	return append(folders, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64")
}

// FileVersion is the version in the name of a library's file, links followed: what stands after ".so."; "" where
// nothing does.
func FileVersion(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	_, number, _ := strings.Cut(filepath.Base(path), ".so.")
	return number
}
