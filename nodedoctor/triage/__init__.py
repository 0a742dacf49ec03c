"""Why a job died: logs and flight-recorder dumps -> events -> candidate causes -> one verdict."""
