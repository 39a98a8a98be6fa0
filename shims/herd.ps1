# herd.ps1: the old name of herd. A kit's profiles, in config beside the folder of this file, are used as the old one did.
$tool = 'herd'
$self = $PSCommandPath
for ($i = 0; $i -lt 40; $i++) {
	$item = Get-Item -LiteralPath $self -Force
	if ($item.LinkType -ne 'SymbolicLink') { break }
	$target = @($item.Target)[0]
	if (-not [IO.Path]::IsPathRooted($target)) { $target = Join-Path (Split-Path -Parent $self) $target }
	$self = $target
}
$here = Split-Path -Parent $self
$models = Join-Path $here '../config/models.env'
if ([string]::IsNullOrWhiteSpace($env:DELEGATE_MODELS_FILE) -and (Test-Path -LiteralPath $models -PathType Leaf)) {
	$env:DELEGATE_MODELS_FILE = $models
}
$name = if ($env:OS -eq 'Windows_NT') { "$tool.exe" } else { $tool }
# ..\..\bin is where the binaries are seen from PREFIX/libexec/prun-shims.
$dirs = @()
if (-not [string]::IsNullOrWhiteSpace($env:PRUN_BIN_DIR)) { $dirs += $env:PRUN_BIN_DIR }
$dirs += (Join-Path $here '../bin'), (Join-Path $here '../../bin')
$found = @($dirs | ForEach-Object { Join-Path $_ $name } | Where-Object { Test-Path -LiteralPath $_ -PathType Leaf })
$found += @(Get-Command -Name $name -CommandType Application -ErrorAction SilentlyContinue | ForEach-Object { $_.Source })
$found += @(Join-Path $here $name | Where-Object { Test-Path -LiteralPath $_ -PathType Leaf })
if ($found.Count -eq 0) {
	[Console]::Error.WriteLine("herd: $tool not found; install the prun suite (make install) or set PRUN_BIN_DIR")
	exit 127
}
$program = $found[0]
& $program @args
exit $LASTEXITCODE
