"""Memory of temporaries: planned in one arena, taken by the threads of a kernel, and how much of it a call takes."""
