UPDATE clients SET settings = REPLACE(settings, '"introspects":true', '"introspects":"all"') WHERE settings LIKE '%"introspects":true%';
